package app

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/egress"
)

// CompatibilityOptions are flags of kube-apiserver of which little is left here: most
// have no effect, and say so when they are set.
type CompatibilityOptions struct {
	StorageBackend, StorageMediaType string
	Emulated                         EmulationOptions
	EgressSelector                   string

	idle []*pflag.Flag
}

// idleFlag is accepted and does nothing.
type idleFlag struct {
	section, name string
	// sample has the flag's type and default.
	sample any
	why    string
}

func idleFlags() []idleFlag {
	const (
		counted = "what is stored is counted as it changes, and sizes are read when metrics are"
		logging = "each line is written as it comes"
	)
	return []idleFlag{
		{"etcd", "watch-cache", true, "every resource is in the watch cache"},
		{"etcd", "watch-cache-sizes", []string(nil), "history is kept for five minutes, within --watch-history-memory"},
		{"etcd", "etcd-count-metric-poll-period", time.Minute, counted},
		{"etcd", "etcd-db-metric-poll-interval", 30 * time.Second, counted},
		{"generic", "storage-initialization-timeout", time.Minute, "the server is ready when everything is loaded, not before"},
		{"logs", "log-flush-frequency", 5 * time.Second, logging},
		{"logs", "log-text-info-buffer-size", "", logging},
		{"logs", "log-text-split-stream", false, logging},
		{"logs", "log-json-info-buffer-size", "", logging},
		{"logs", "log-json-split-stream", false, logging},
		{"logs", "vmodule", "", "--v counts for all of the process"},
	}
}

func (o *CompatibilityOptions) addFlags(s *options.Sections) {
	f := s.Set("etcd")
	f.StringVar(&o.StorageBackend, "storage-backend", "", "The storage: etcd3, which is the only one.")
	f.StringVar(&o.StorageMediaType, "storage-media-type", protobufMedia, "How built-in kinds are stored: "+protobufMedia+", which is the only form that is written. Values in JSON are read.")
	g := s.Set("generic")
	o.Emulated.addFlags(g)
	g.StringVar(&o.EgressSelector, "egress-selector-config-file", "", "File that says how the networks of the control plane, of etcd and of the cluster are reached: directly, or through a proxy (EgressSelectorConfiguration, apiserver.k8s.io/v1beta1).")
	for _, i := range idleFlags() {
		set, usage := s.Set(i.section), "Has no effect: "+i.why+"."
		switch v := i.sample.(type) {
		case bool:
			set.Bool(i.name, v, usage)
		case time.Duration:
			set.Duration(i.name, v, usage)
		case []string:
			set.StringSlice(i.name, v, usage)
		default:
			set.String(i.name, "", usage)
		}
		o.idle = append(o.idle, set.Lookup(i.name))
	}
}

const protobufMedia = "application/vnd.kubernetes.protobuf"

func (o *CompatibilityOptions) validate() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.StorageBackend != "" && o.StorageBackend != "etcd3" {
		bad("--storage-backend invalid, allowed values: etcd3. If not specified, it will default to 'etcd3'")
	}
	if o.StorageMediaType != protobufMedia {
		bad("--storage-media-type %q invalid, allowed values: %s", o.StorageMediaType, protobufMedia)
	}
	if o.EgressSelector != "" {
		if _, err := os.Stat(o.EgressSelector); err != nil {
			bad("egress-selector-config-file %s does not exist", o.EgressSelector)
		} else if _, err := egress.Read(o.EgressSelector); err != nil {
			bad("--egress-selector-config-file: %w", err)
		}
	}
	return append(errs, o.Emulated.validate()...)
}

// warn tells of the flags that were set and have no effect.
func (o *CompatibilityOptions) warn(log *slog.Logger) {
	why := map[string]string{}
	for _, i := range idleFlags() {
		why[i.name] = i.why
	}
	for _, f := range o.idle {
		if f.Changed {
			log.Warn("A flag has no effect here", "flag", "--"+f.Name, "why", why[f.Name])
		}
	}
}
