// Package view computes the shown figures from the samples of the last minute: rates, delays and
// recent rejections. The figures of a restarted replica count since its start.
package view

import (
	"time"
)

// State is the content of the page, as JSON. Unknown figures are absent.
type State struct {
	Time time.Time `json:"at"`
	// Seconds is the period over which rates are computed.
	Seconds      float64          `json:"seconds"`
	Replicas     []Replica        `json:"replicas"`
	Missing      []MissingService `json:"missing,omitempty"`
	Requests     []Rate           `json:"requests"`
	Certificates []Certificate    `json:"certificates"`
	// Etcd holds the members of etcd clusters. An embedded etcd is one member per API server.
	Etcd []EtcdMember `json:"etcd"`
	// Resources holds the resources that use the most storage, largest first.
	Resources []Resource `json:"resources"`
	// Clients holds the clients with the most requests, the most active first.
	Clients []Client `json:"clients"`
	// Series holds the last 15 minutes, oldest first.
	Series []Point `json:"series"`
	// Rejections holds the last rejections, newest first.
	Rejections []Rejection `json:"refusals"`
}

// Replica is a replica of a service.
type Replica struct {
	Service string   `json:"service"`
	Address string   `json:"address"`
	Ready   bool     `json:"ready"`
	Failing []string `json:"failing,omitempty"`
	Error   string   `json:"error,omitempty"`
	// Publisher means that it publishes changes for all API servers, Leader that it does the work
	// of a controller.
	Publisher bool `json:"publisher,omitempty"`
	Leader    bool `json:"leader,omitempty"`
	// Source is the source from which an API server receives changes: nats, store or local.
	Source       string     `json:"source,omitempty"`
	LagRevisions *float64   `json:"lagRevisions,omitempty"`
	LagSeconds   *float64   `json:"lagSeconds,omitempty"`
	Watchers     *float64   `json:"watchers,omitempty"`
	InFlight     *float64   `json:"inFlight,omitempty"`
	Requests     *float64   `json:"requestsPerSecond,omitempty"`
	DeliveryP99  *float64   `json:"deliveryP99Seconds,omitempty"`
	CPU          *float64   `json:"cpus,omitempty"`
	Memory       float64    `json:"memoryBytes,omitempty"`
	Started      *time.Time `json:"started,omitempty"`
	// Version is the version of Kubernetes that the replica serves.
	Version string `json:"version,omitempty"`
	// NATS is the connection of an API server to NATS.
	NATS *NATS `json:"nats,omitempty"`
	// DiskSize and DiskFree describe the disk of an embedded etcd, in bytes.
	DiskSize float64 `json:"diskSizeBytes,omitempty"`
	DiskFree float64 `json:"diskFreeBytes,omitempty"`
}

// NATS is the connection of an API server to NATS. Disconnects and SlowConsumers count since the
// start of the API server.
type NATS struct {
	Connected     bool    `json:"connected"`
	Disconnects   float64 `json:"disconnects"`
	SlowConsumers float64 `json:"slowConsumers"`
}

// EtcdMember is a member of an etcd cluster, in bytes. A quota of 0 is unknown.
type EtcdMember struct {
	Cluster  string   `json:"cluster,omitempty"`
	Endpoint string   `json:"endpoint"`
	Up       bool     `json:"up"`
	Leader   bool     `json:"leader"`
	Size     float64  `json:"sizeBytes"`
	Used     float64  `json:"usedBytes"`
	Quota    float64  `json:"quotaBytes"`
	Alarms   []string `json:"alarms,omitempty"`
}

// Resource is the storage that a resource uses.
type Resource struct {
	Resource string  `json:"resource"`
	Objects  float64 `json:"objects"`
	Bytes    float64 `json:"bytes"`
}

// Client is a client of the API servers.
type Client struct {
	Client    string  `json:"client"`
	PerSecond float64 `json:"perSecond"`
	// Total counts since the start of the API servers.
	Total float64 `json:"total"`
}

// Point is the state of the suite at one time. Rates and percentiles cover the minute before.
type Point struct {
	Time       time.Time `json:"at"`
	Requests   float64   `json:"requestsPerSecond"`
	LatencyP99 float64   `json:"latencyP99Seconds"`
	Watchers   float64   `json:"watchers"`
	Lag        float64   `json:"lagSeconds"`
	Memory     float64   `json:"memoryBytes"`
	EtcdSize   float64   `json:"etcdBytes"`
}

// MissingService is a service without known replicas.
type MissingService struct {
	Service string `json:"service"`
	Error   string `json:"error"`
}

// Rate is the rate of a class of requests, over all API servers.
type Rate struct {
	Verb      string  `json:"verb"`
	Code      string  `json:"code"`
	PerSecond float64 `json:"perSecond"`
	// Total counts since the start of the API servers.
	Total float64 `json:"total"`
}

// Certificate is a certificate that replicas present or trust.
type Certificate struct {
	Service string    `json:"service"`
	Use     string    `json:"use"`
	File    string    `json:"file"`
	Ends    time.Time `json:"ends"`
}

// Rejection is the number of rejections of a class between two scrapes.
type Rejection struct {
	Time    time.Time `json:"at"`
	Service string    `json:"service"`
	Address string    `json:"address"`
	Subject string    `json:"what"`
	Reason  string    `json:"why"`
	Count   float64   `json:"count"`
}
