package config

import (
	"fmt"
	"time"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/storage/encryption"
)

// defaultHealthTimeout bounds the response time of etcd in health checks.
const defaultHealthTimeout = 2 * time.Second

// Values of --storage-backend. Empty means etcd, too.
const (
	BackendEtcd   = "etcd3"
	BackendMemory = "memory"
)

// EtcdOptions configure the storage of objects.
type EtcdOptions struct {
	Backend                   string // BackendEtcd or BackendMemory
	Servers                   []string
	Overrides                 []string // values of the flag
	CAFile, CertFile, KeyFile string
	Prefix                    string
	CompactionInterval        time.Duration
	LeaseReuseSeconds         int
	// HealthTimeout and ReadyTimeout bound the response time of etcd in health checks. The flags
	// accept 0 for the default.
	HealthTimeout, ReadyTimeout time.Duration
	DataDir                     string
	Embedded                    EmbeddedEtcdOptions // without Servers
}

func (o *EtcdOptions) addFlags(s *options.Sections) {
	f := s.Set("etcd")
	f.StringVar(&o.Backend, "storage-backend", o.Backend, "Storage backend: etcd3 or memory. memory is for tests: it supports one replica and loses all objects when the process exits.")
	f.StringSliceVar(&o.Servers, "etcd-servers", nil, "Comma-separated URLs of the etcd servers. If empty, the server embeds etcd, with its data in --data-dir.")
	f.StringSliceVar(&o.Overrides, "etcd-servers-overrides", nil, "Per-resource etcd servers, comma separated. The format of an override is group/resource#servers, where servers are URLs, semicolon separated, such as /events#https://etcd-events:2379. The resource * is all resources of the group. The certificates are those of --etcd-servers.")
	f.StringVar(&o.CAFile, "etcd-cafile", "", "CA bundle that verifies the etcd servers.")
	f.StringVar(&o.CertFile, "etcd-certfile", "", "Client certificate for etcd.")
	f.StringVar(&o.KeyFile, "etcd-keyfile", "", "Key of the client certificate for etcd.")
	f.StringVar(&o.Prefix, "etcd-prefix", o.Prefix, "Prefix of all keys in etcd.")
	f.DurationVar(&o.CompactionInterval, "etcd-compaction-interval", o.CompactionInterval, "Interval of compaction requests, and the minimum time that etcd keeps history. 0 disables compaction by API servers.")
	f.IntVar(&o.LeaseReuseSeconds, "lease-reuse-duration-seconds", o.LeaseReuseSeconds, "Time in seconds for which an etcd lease is reused for further objects that expire.")
	f.DurationVar(&o.HealthTimeout, "etcd-healthcheck-timeout", o.HealthTimeout, "Timeout of the etcd check of /healthz and /livez.")
	f.DurationVar(&o.ReadyTimeout, "etcd-readycheck-timeout", o.ReadyTimeout, "Timeout of the etcd check of /readyz.")
	f.StringVar(&o.DataDir, "data-dir", o.DataDir, "Data directory of the embedded etcd.")
	o.Embedded.addFlags(s)
}

// complete replaces a timeout of 0.
func (o *EtcdOptions) complete() {
	for _, timeout := range []*time.Duration{&o.HealthTimeout, &o.ReadyTimeout} {
		if *timeout == 0 {
			*timeout = defaultHealthTimeout
		}
	}
}

// validateBackend validates --storage-backend and rejects options that contradict a memory store,
// which no other replica shares.
func (o *Options) validateBackend() (errs []error) {
	switch o.Etcd.Backend {
	case BackendEtcd, "":
		return nil
	case BackendMemory:
	default:
		return []error{fmt.Errorf("--storage-backend invalid, allowed values: %s, %s. If not specified, it will default to '%s'", BackendEtcd, BackendMemory, BackendEtcd)}
	}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--etcd-servers", len(o.Etcd.Servers) > 0},
		{"--etcd-servers-overrides", len(o.Etcd.Overrides) > 0},
		{"--embedded-etcd-listen-client-url", o.Etcd.Embedded.ListenClientURL != ""},
		{"--nats-servers", len(o.Fanout.Servers) > 0},
	} {
		if f.given {
			errs = append(errs, fmt.Errorf("%s cannot be used with --storage-backend=%s", f.name, BackendMemory))
		}
	}
	return errs
}

// EncryptionOptions select the resources that are stored encrypted.
type EncryptionOptions struct {
	ConfigFile string
	Reload     bool
}

func (o *EncryptionOptions) addFlags(s *options.Sections) {
	f := s.Set("etcd")
	f.StringVar(&o.ConfigFile, "encryption-provider-config", "", "File with the configuration of encryption providers for resources in etcd (EncryptionConfiguration, apiserver.config.k8s.io/v1). If empty, nothing is encrypted.")
	f.BoolVar(&o.Reload, "encryption-provider-config-automatic-reload", false, "Reload the file of --encryption-provider-config when it changes. All KMS plugins then share the health check kms-providers.")
}

func (o *EncryptionOptions) validate() []error {
	if o.Reload && o.ConfigFile == "" {
		return []error{encryption.ErrWithoutFile}
	}
	return nil
}
