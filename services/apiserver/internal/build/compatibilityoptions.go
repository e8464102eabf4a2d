package build

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	names "binnacle/libs/api"
	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/proxy/egress"
)

// CompatibilityOptions are flags of kube-apiserver of which little is left here: most
// have no effect, and say so when they are set.
type CompatibilityOptions struct {
	StorageMediaType string
	WatchCache       bool
	Emulated         EmulationOptions
	EgressSelector   string

	idle []*pflag.Flag
}

// idleFlag is accepted and does nothing.
type idleFlag struct {
	section, name string
	// sample has the flag's type and default.
	sample any
	why    string
	// deprecated hides the flag from --help, as kube-apiserver does.
	deprecated bool
}

func idleFlags() []idleFlag {
	const (
		counted = "what is stored is counted as it changes, and sizes are read when metrics are"
		logging = "each line is written as it comes"
	)
	return []idleFlag{
		{section: "etcd", name: "watch-cache-sizes", sample: []string(nil), why: "history is kept for five minutes, within --watch-history-memory"},
		{section: "etcd", name: "etcd-count-metric-poll-period", sample: time.Minute, why: counted},
		{section: "etcd", name: "etcd-db-metric-poll-interval", sample: 30 * time.Second, why: counted},
		{section: "etcd", name: "default-watch-cache-size", sample: 100, why: "the watch cache grows with what it holds", deprecated: true},
		{section: "misc", name: apiserverCount, sample: 1, why: "the endpoints of the kubernetes service are the servers that renew their lease", deprecated: true},
		{section: "misc", name: "kubelet-read-only-port", sample: uint(10255), why: "no request is sent to that port", deprecated: true},
		{section: "generic", name: "storage-initialization-timeout", sample: time.Minute, why: "the server is ready when everything is loaded, not before"},
		{section: "logs", name: "log-flush-frequency", sample: 5 * time.Second, why: logging},
		{section: "logs", name: "log-text-info-buffer-size", sample: "", why: logging},
		{section: "logs", name: "log-text-split-stream", sample: false, why: logging},
		{section: "logs", name: "log-json-info-buffer-size", sample: "", why: logging},
		{section: "logs", name: "log-json-split-stream", sample: false, why: logging},
		{section: "logs", name: "vmodule", sample: "", why: "--v counts for all of the process"},
	}
}

func (o *CompatibilityOptions) addFlags(s *options.Sections) {
	f := s.Set("etcd")
	f.StringVar(&o.StorageMediaType, "storage-media-type", names.MediaProtobuf, "How built-in kinds are stored: "+names.MediaProtobuf+" or "+names.MediaJSON+". Values of both forms are read. CustomResourceDefinitions and APIServices are always stored as JSON.")
	f.BoolVar(&o.WatchCache, "watch-cache", true, "Every resource is in the watch cache. Without this flag, lists with resourceVersion=0 have the limit that a client gives, as if etcd served them.")
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
		case int:
			set.Int(i.name, v, usage)
		case uint:
			set.Uint(i.name, v, usage)
		default:
			set.String(i.name, "", usage)
		}
		if i.deprecated {
			_ = set.MarkDeprecated(i.name, "it has no effect: "+i.why)
		}
		o.idle = append(o.idle, set.Lookup(i.name))
	}
}

// apiserverCount is the name of a flag without effect whose value is checked.
const apiserverCount = "apiserver-count"

func (o *CompatibilityOptions) validate() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.StorageMediaType != names.MediaProtobuf && o.StorageMediaType != names.MediaJSON {
		bad("--storage-media-type %q invalid, allowed values: %s, %s", o.StorageMediaType, names.MediaJSON, names.MediaProtobuf)
	}
	if o.EgressSelector != "" {
		if _, err := os.Stat(o.EgressSelector); err != nil {
			bad("egress-selector-config-file %s does not exist", o.EgressSelector)
		} else if _, err := egress.Read(o.EgressSelector); err != nil {
			bad("--egress-selector-config-file: %w", err)
		}
	}
	for _, f := range o.idle {
		if n, err := strconv.Atoi(f.Value.String()); f.Name == apiserverCount && err == nil && n <= 0 {
			bad("--%s should be a positive number, but value '%d' provided", f.Name, n)
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
