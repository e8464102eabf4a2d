package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	names "binnacle/libs/api"
	"binnacle/libs/options"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/proxy/egress"
)

// CompatibilityOptions are flags of kube-apiserver that have little or no effect here. The server
// logs a warning if a flag without effect is set.
type CompatibilityOptions struct {
	// StorageMediaType is the media type in which built-in kinds are stored.
	StorageMediaType string
	// WatchCache, if false, makes lists with resourceVersion=0 obey the limit of the client.
	WatchCache     bool
	Emulated       EmulationOptions
	EgressSelector string // path of the egress selector configuration
	noEffect       []*pflag.Flag
}

// noEffectFlag is a flag that the server accepts and ignores.
type noEffectFlag struct {
	section, name string
	// sample is the default value. Its type is the type of the flag.
	sample any
	// reason completes "Has no effect: ...".
	reason string
	// deprecated hides the flag from --help, as kube-apiserver does.
	deprecated bool
}

// noEffectFlags returns all flags without effect.
func noEffectFlags() []noEffectFlag {
	const (
		countReason = "objects are counted on each change, and sizes are read on each scrape"
		logReason   = "log lines are not buffered"
	)
	return []noEffectFlag{
		{
			section: "etcd",
			name:    "watch-cache-sizes",
			sample:  []string(nil),
			reason:  "watch history covers five minutes, within --watch-history-memory",
		},
		{section: "etcd", name: "etcd-count-metric-poll-period", sample: time.Minute, reason: countReason},
		{section: "etcd", name: "etcd-db-metric-poll-interval", sample: 30 * time.Second, reason: countReason},
		{section: "etcd", name: "default-watch-cache-size", sample: 100, reason: "the watch cache has no fixed size", deprecated: true},
		{
			section:    "misc",
			name:       apiserverCount,
			sample:     1,
			reason:     "the kubernetes service lists the servers that renew their lease",
			deprecated: true,
		},
		{
			section:    "misc",
			name:       "kubelet-read-only-port",
			sample:     uint(10255),
			reason:     "no request is sent to that port",
			deprecated: true,
		},
		{
			section: "generic",
			name:    "storage-initialization-timeout",
			sample:  time.Minute,
			reason:  "the server is ready once everything is loaded",
		},
		{section: "logs", name: "log-flush-frequency", sample: 5 * time.Second, reason: logReason},
		{section: "logs", name: "log-text-info-buffer-size", sample: "", reason: logReason},
		{section: "logs", name: "log-text-split-stream", sample: false, reason: logReason},
		{section: "logs", name: "log-json-info-buffer-size", sample: "", reason: logReason},
		{section: "logs", name: "log-json-split-stream", sample: false, reason: logReason},
		{section: "logs", name: "vmodule", sample: "", reason: "--v applies to the whole process"},
	}
}

func (o *CompatibilityOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("etcd")
	flagSet.StringVar(&o.StorageMediaType, "storage-media-type", names.MediaProtobuf,
		"How built-in kinds are stored: "+names.MediaProtobuf+" or "+
			names.MediaJSON+". Values of both forms are read. CustomResourceDefinitions and APIServices are always stored as JSON.")
	flagSet.BoolVar(&o.WatchCache, "watch-cache", true,
		"Serve lists with resourceVersion=0 from the watch cache without a limit. If false, such lists obey the limit of the client; all resources stay in the watch cache.")
	genericFlags := sections.Set("generic")
	o.Emulated.addFlags(genericFlags)
	genericFlags.StringVar(&o.EgressSelector, "egress-selector-config-file", "",
		"File with the egress selector configuration: the proxies for connections to the control plane, etcd and the cluster (EgressSelectorConfiguration, apiserver.k8s.io/v1beta1).")
	for _, ignored := range noEffectFlags() {
		set := sections.Set(ignored.section)
		usage := "Has no effect: " + ignored.reason + "."
		switch sample := ignored.sample.(type) {
		case bool:
			set.Bool(ignored.name, sample, usage)
		case time.Duration:
			set.Duration(ignored.name, sample, usage)
		case []string:
			set.StringSlice(ignored.name, sample, usage)
		case int:
			set.Int(ignored.name, sample, usage)
		case uint:
			set.Uint(ignored.name, sample, usage)
		default:
			set.String(ignored.name, "", usage)
		}
		if ignored.deprecated {
			_ = set.MarkDeprecated(ignored.name, "it has no effect: "+ignored.reason)
		}
		o.noEffect = append(o.noEffect, set.Lookup(ignored.name))
	}
}

// apiserverCount is the only flag without effect whose value is validated.
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
	for _, flag := range o.noEffect {
		if n, err := strconv.Atoi(flag.Value.String()); flag.Name == apiserverCount && err == nil && n <= 0 {
			bad("--%s should be a positive number, but value '%d' provided", flag.Name, n)
		}
	}
	return append(errs, o.Emulated.validate()...)
}

// Warn logs the flags that were set and have no effect.
func (o *CompatibilityOptions) Warn(log *slog.Logger) {
	reasons := map[string]string{}
	for _, ignored := range noEffectFlags() {
		reasons[ignored.name] = ignored.reason
	}
	for _, flag := range o.noEffect {
		if flag.Changed {
			log.Warn("flag has no effect", "flag", "--"+flag.Name, "why", reasons[flag.Name])
		}
	}
}

// EmulationOptions select the Kubernetes version that the server emulates.
type EmulationOptions struct {
	// Versions holds the values of --emulated-version, such as "kube=1.32" or "1.32".
	Versions []string
	// Forward also serves newer stable and beta versions of resources than the emulated version
	// had.
	Forward bool
	// Named also serves newer APIs that --runtime-config enables by group and version.
	Named bool
	// version is the emulated version, which complete sets; nil means the server's own version.
	version *utilversion.Version
}

func (o *EmulationOptions) addFlags(flagSet *pflag.FlagSet) {
	flagSet.StringSliceVar(&o.Versions, "emulated-version", nil,
		fmt.Sprintf("The version of Kubernetes whose APIs, feature gates and defaults the server emulates, as kube=1.%[1]d or 1.%[1]d. Options are: kube=1.%[1]d..1.%[2]d(default:1.%[2]d).",
			version.OldestEmulated, version.MinorNumber))
	flagSet.BoolVar(&o.Forward, "emulation-forward-compatible", false,
		"With an older --emulated-version, also serve newer stable and beta versions of the served resources.")
	flagSet.BoolVar(&o.Named, "runtime-config-emulation-forward-compatible", false,
		"With an older --emulated-version, also serve newer APIs that --runtime-config enables by group and version. If false, such a --runtime-config is an error.")
}

// complete sets the emulated version from Versions. It runs before the feature gates are completed,
// because their defaults depend on the version.
func (o *EmulationOptions) complete() error {
	for _, specified := range o.Versions {
		name, number, named := strings.Cut(specified, "=")
		if !named {
			name = component
			number = specified
		}
		parsed, err := utilversion.Parse(number)
		switch {
		case err != nil:
			return fmt.Errorf("--emulated-version: %w", err)
		case parsed.Patch() != 0:
			return fmt.Errorf("--emulated-version: patch version not allowed, got: %s=%s", name, parsed)
		case name != component:
			return fmt.Errorf("--emulated-version: component not registered: %s", name)
		case o.version != nil:
			return fmt.Errorf("--emulated-version: duplicate version flag, %[1]s=%[2]s and %[1]s=%[3]s", component, o.version, parsed)
		}
		o.version = utilversion.MajorMinor(parsed.Major(), parsed.Minor())
	}
	return nil
}

// component is the only component whose version can be emulated.
const component = "kube"

func (o *EmulationOptions) validate() (errs []error) {
	oldest := utilversion.MajorMinor(1, version.OldestEmulated)
	own := utilversion.MajorMinor(1, version.MinorNumber)
	if v := o.version; v != nil && (v.LessThan(oldest) || v.GreaterThan(own)) {
		errs = append(errs, fmt.Errorf("emulation version %s is not between [%s, %s]", v, oldest, own))
	}
	if o.version == nil || o.version.EqualTo(own) {
		if o.Forward {
			errs = append(errs,
				errors.New("ServerRunOptions.EmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version"))
		}
		if o.Named {
			errs = append(errs,
				errors.New("ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot be set to true if the emulation version is the same as the binary version"))
		}
	}
	return errs
}

// Emulation returns which Kubernetes version the server emulates, for package builtin.
func (o *CompatibilityOptions) Emulation() builtin.Emulation {
	emulation := builtin.Emulation{Minor: version.MinorNumber, Forward: o.Emulated.Forward, Named: o.Emulated.Named}
	if o.Emulated.version != nil {
		emulation.Minor = int(o.Emulated.version.Minor())
	}
	return emulation
}
