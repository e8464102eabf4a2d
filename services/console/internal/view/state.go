// Package view turns what replicas tell into what people look at: rates, delays and
// what was refused lately, from the samples of the last minute. The figures of a
// replica that has started again are those since its start.
package view

import (
	"time"
)

// State is what the page shows, as JSON. Figures that are not known are absent.
type State struct {
	At time.Time `json:"at"`
	// Seconds are how long the samples reach back that rates are made of.
	Seconds      float64       `json:"seconds"`
	Replicas     []Replica     `json:"replicas"`
	Missing      []Missing     `json:"missing,omitempty"`
	Requests     []Rate        `json:"requests"`
	Certificates []Certificate `json:"certificates"`
	// Refusals are the last ones, the newest first.
	Refusals []Refusal `json:"refusals"`
}

// Replica is one of a service.
type Replica struct {
	Service string   `json:"service"`
	Address string   `json:"address"`
	Ready   bool     `json:"ready"`
	Failing []string `json:"failing,omitempty"`
	Error   string   `json:"error,omitempty"`
	// Publisher publishes changes for all API servers; Leader does the work of a
	// controller.
	Publisher bool `json:"publisher,omitempty"`
	Leader    bool `json:"leader,omitempty"`
	// Source is where an API server takes changes from: nats, store or local.
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
}

// Missing is a service none of whose replicas can be found.
type Missing struct {
	Service string `json:"service"`
	Error   string `json:"error"`
}

// Rate is how many requests there are of a kind, of all API servers.
type Rate struct {
	Verb      string  `json:"verb"`
	Code      string  `json:"code"`
	PerSecond float64 `json:"perSecond"`
	// Total is since the API servers have started.
	Total float64 `json:"total"`
}

// Certificate is one that replicas show or trust.
type Certificate struct {
	Service string    `json:"service"`
	Use     string    `json:"use"`
	File    string    `json:"file"`
	Ends    time.Time `json:"ends"`
}

// Refusal is how often something was refused between two looks.
type Refusal struct {
	At      time.Time `json:"at"`
	Service string    `json:"service"`
	Address string    `json:"address"`
	What    string    `json:"what"`
	Why     string    `json:"why"`
	Count   float64   `json:"count"`
}
