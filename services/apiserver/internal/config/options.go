package config

import (
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"time"

	"binnacle/libs/features"
	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/storage/fanout"
)

// Name is the name of the service, its binary and its certificate.
const Name = "apiserver"

// Short is a one-line description of the service.
const Short = "The Kubernetes API server of binnacle."

// Options configure the server.
type Options struct {
	Serving        *serving.Options
	Fanout         fanout.Options
	Etcd           EtcdOptions
	Encryption     EncryptionOptions
	Authentication AuthenticationOptions
	Authorization  AuthorizationOptions
	Admission      AdmissionOptions
	Features       *features.Gates
	Upstream       kubeletproxy.Options
	Memory         MemoryOptions
	Audit          AuditOptions
	Metrics        metrics.Lifecycle
	Tracing        tracing.Options

	Bounds      Limits // no flag sets them
	Requests    RequestOptions
	Services    ServiceOptions
	Aggregation AggregationOptions
	Debug       DebugOptions

	RuntimeConfig   builtin.RuntimeConfig
	AllowPrivileged bool
	// AdvertiseAddress is the address at which members of the cluster reach the server. If it is
	// not set, Complete sets it.
	AdvertiseAddress net.IP
	// ExternalHostname is the name that discovery shows; empty means AdvertiseAddress.
	ExternalHostname string
	Compatibility    CompatibilityOptions

	// Host is the name of this machine; empty means the hostname of the operating system. Tests
	// give replicas on one machine different names.
	Host string
	// WrapSource, if set, wraps the change stream that feeds the watch cache. Tests use it.
	WrapSource func(watchcache.Source) watchcache.Source
	// LeaderElectionRetryPeriod is the retry period of coordinated leader election; 0 means its default.
	// Tests shorten it.
	LeaderElectionRetryPeriod time.Duration

	flags *options.Sections // set by AddFlags; /flagz shows them
}

// NewOptions returns options with the defaults that AddFlags shows in --help.
func NewOptions() *Options {
	return &Options{
		Serving: serving.NewOptions(Name, 6443),
		Fanout:  fanout.NewOptions(),
		Etcd: EtcdOptions{
			Backend:            BackendEtcd,
			Prefix:             "/registry",
			CompactionInterval: 5 * time.Minute,
			LeaseReuseSeconds:  60,
			HealthTimeout:      defaultHealthTimeout,
			ReadyTimeout:       defaultHealthTimeout,
			DataDir:            "binnacle.data",
			Embedded:           newEmbeddedEtcdOptions(),
		},
		Authentication: newAuthenticationOptions(),
		Authorization:  newAuthorizationOptions(),
		Admission:      AdmissionOptions{TypeChecks: true},
		Features:       features.New(),
		Upstream:       kubeletproxy.NewOptions(),
		Audit:          newAuditOptions(),
		Bounds:         newLimits(),
		Requests:       newRequestOptions(),
		Services:       newServiceOptions(),
	}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(sections *options.Sections) {
	o.flags = sections
	flagSet := sections.Set("generic")
	flagSet.IPVar(&o.AdvertiseAddress, "advertise-address", nil,
		"The IP address on which to advertise the apiserver to members of the cluster. If blank, --bind-address is used; if that is unspecified or a loopback address, the host's default interface.")
	flagSet.DurationVar(&o.Serving.RequestTimeout, "request-timeout", time.Minute,
		"Maximum duration of a request, except for long-running requests such as watches.")
	flagSet.Var(&o.RuntimeConfig, "runtime-config",
		"Comma-separated key=value pairs that enable (true) or disable (false) APIs: v1, <group>/<version>, <group>/<version>/<resource>, api/all, api/ga, api/beta, api/alpha.")
	flagSet.Var(o.Features, "feature-gates", features.Help())
	flagSet.StringVar(&o.ExternalHostname, "external-hostname", "",
		"Hostname advertised in discovery, with or without a port. Defaults to --advertise-address.")
	o.Serving.AddFlags(sections)
	o.Etcd.addFlags(sections)
	o.Encryption.addFlags(sections)
	addFanoutFlags(sections.Set("fan-out"), &o.Fanout)
	o.Memory.addFlags(sections)
	o.Audit.addFlags(sections)
	o.Authentication.addFlags(sections)
	o.Authorization.addFlags(sections)
	o.Admission.addFlags(sections)
	o.Metrics.AddFlags(sections.Set("metrics"))
	o.Tracing.AddFlags(sections.Set("traces"))
	miscFlags := sections.Set("misc")
	addKubeletFlags(miscFlags, &o.Upstream)
	o.Requests.addFlags(flagSet, miscFlags)
	o.Debug.addFlags(flagSet, miscFlags)
	o.Services.addFlags(miscFlags)
	o.Aggregation.addFlags(miscFlags)
	o.Compatibility.addFlags(sections)
	miscFlags.BoolVar(&o.AllowPrivileged, "allow-privileged", false, "If true, allow privileged containers.")
}

// FlagValues returns the name and value of each flag, or nil before AddFlags.
func (o *Options) FlagValues() [][2]string {
	if o.flags == nil {
		return nil
	}
	return o.flags.Values()
}

// Complete implements options.Options.
func (o *Options) Complete() error {
	if err := o.Compatibility.Emulated.complete(); err != nil {
		return err
	}
	o.Features.Emulate(o.Compatibility.Emulation().Minor)
	o.Etcd.complete()
	if err := o.Services.complete(); err != nil {
		return err
	}
	if o.AdvertiseAddress == nil {
		o.AdvertiseAddress = defaultAdvertiseAddress(o.Serving.BindAddress)
	}
	o.Authentication.restrictAnonymous(&o.Authorization)
	o.Admission.mayAuthorizeNodes = o.Authorization.mayAuthorizeNodes()
	clientCAs, err := o.Authentication.complete()
	if err != nil {
		return err
	}
	o.Serving.ExtraClientCAs = append(o.Serving.ExtraClientCAs, clientCAs...)
	o.Serving.AdvertiseAddress = o.AdvertiseAddress
	o.Serving.AlternateNames = append(o.Serving.AlternateNames,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", serviceAddress(o.Services.Ranges[0]))
	return o.Serving.Complete()
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	// 1. Storage.
	errs := o.Serving.Validate()
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := o.Fanout.Validate(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, o.validateBackend()...)
	if o.Etcd.Backend != BackendMemory && len(o.Etcd.Servers) == 0 && o.Etcd.DataDir == "" {
		errs = append(errs, errors.New("--data-dir must be given when --etcd-servers is empty"))
	}
	errs = append(errs, o.Etcd.validateOverrides()...)
	errs = append(errs, o.Etcd.Embedded.validate(len(o.Etcd.Servers) > 0)...)
	if path.Join("/", o.Etcd.Prefix) == "/" {
		bad("--etcd-prefix %q must name a root", o.Etcd.Prefix)
	}
	if (o.Etcd.CertFile == "") != (o.Etcd.KeyFile == "") {
		errs = append(errs, errors.New("--etcd-certfile and --etcd-keyfile go together"))
	}
	errs = append(errs, o.Encryption.validate()...)
	errs = append(errs, o.validatePeers()...)

	// 2. Combinations and bounds of single flags.
	if o.Features.Enabled(features.AuthorizeNodeWithSelectors) && !o.Features.Enabled(features.AuthorizeWithSelectors) {
		bad("%s feature requires %s feature to be enabled", features.AuthorizeNodeWithSelectors, features.AuthorizeWithSelectors)
	}
	isNegative := o.Requests.MinRequestTimeout < 0 || o.Requests.MaxInFlight < 0 ||
		o.Requests.MaxMutatingInFlight < 0 || o.Serving.RequestTimeout < 0
	if isNegative || o.Requests.EventTTL <= 0 {
		errs = append(errs,
			errors.New("--min-request-timeout, --max-requests-inflight, --max-mutating-requests-inflight, --request-timeout must not be negative, --event-ttl must be positive"))
	}
	if o.Etcd.HealthTimeout < 0 || o.Etcd.ReadyTimeout < 0 {
		bad("--etcd-healthcheck-timeout and --etcd-readycheck-timeout must not be negative")
	}
	if !slices.Contains([]string{ReconcileLease, ReconcileNone, "master-count"}, o.Services.EndpointReconciler) {
		bad("--endpoint-reconciler-type must be lease, none or master-count, got %q", o.Services.EndpointReconciler)
	}
	if o.Requests.GoawayChance < 0 || o.Requests.GoawayChance > 0.02 {
		bad("--goaway-chance %v is not within 0 and 0.02", o.Requests.GoawayChance)
	}

	// 3. The other groups of options.
	errs = append(errs, o.Services.validate()...)
	if all, err := builtin.AllKinds(registry.Settings{}); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, o.RuntimeConfig.Validate(all)...)
	}
	errs = append(errs, server.CheckOrigins(o.Requests.AllowedOrigins)...)
	errs = append(errs, o.Compatibility.validate()...)
	errs = append(errs, o.Features.Validate()...)
	errs = append(errs, o.Upstream.Validate()...)
	errs = append(errs, o.Memory.validate()...)
	errs = append(errs, o.Audit.validate()...)
	errs = append(errs, o.Metrics.Validate()...)
	errs = append(errs, o.Authentication.validate()...)
	errs = append(errs, o.Authentication.validateGates(o.Features)...)
	errs = append(errs, o.Authorization.validate()...)
	return append(errs, o.Admission.validate()...)
}

// Limits are the limits on what all clients together may use. No flag sets them. Package build
// passes each one to the constructor that needs it. Limits of a single document are constants of other
// packages. docs/user/limits.md describes both.
type Limits struct {
	Requests overload.Bounds
	// MaxConcurrentTokenReviews is the maximum number of bearer tokens that the token webhook
	// reviews at a time.
	MaxConcurrentTokenReviews int
	// MaxQueuedAuthorizations is the maximum number of requests that wait for one authorization
	// webhook.
	MaxQueuedAuthorizations int
	// MaxLargeWebhookResponses is the maximum number of responses of more than 1 MiB that are read
	// at a time, from admission webhooks and from conversion webhooks.
	MaxLargeWebhookResponses int
	// Conversions bounds the objects that conversion webhooks convert, and the converted objects
	// that responses hold.
	Conversions responsewriters.ConversionBounds
	// MinProxied and MaxProxied bound the limit on concurrent proxied requests. Between them, the
	// limit is a quarter of the open file limit, because each such request has two connections.
	MinProxied, MaxProxied int
	// MaxConcurrentServerChecks is the maximum number of extension servers that are checked at a
	// time.
	MaxConcurrentServerChecks int
	// MaxRewrittenPages is the maximum number of proxied HTML pages, of at most 1 MiB each, whose
	// links are rewritten at a time.
	MaxRewrittenPages int
	// MaxAuditObjectBytes is the maximum size in bytes of an object in an audit event.
	MaxAuditObjectBytes int64
	// MaxAuditObjectsBytes is the maximum size in bytes of all objects that audit events of
	// requests in progress hold.
	MaxAuditObjectsBytes int64
	// MaxAuditQueueBytes is the maximum size in bytes of events that wait for an audit backend.
	MaxAuditQueueBytes int64
	// MaxConcurrentAuditPosts is the maximum number of batches that an audit webhook receives at a
	// time.
	MaxConcurrentAuditPosts int
	// Cached bounds the cached decoded objects of each kind that every write in a namespace reads:
	// quotas and limit ranges.
	Cached lister.Bounds
}

func newLimits() Limits {
	return Limits{
		Requests: overload.Bounds{
			BodyBytesPerCPU:   8 << 20,
			MinBodyBytes:      32 << 20,
			LargeBytesPerCPU:  3 << 20,
			SuspendedBytes:    32 << 20,
			WaitingBodies:     1000,
			Stalled:           1000,
			NegotiationFields: 8 << 10,
		},
		MaxConcurrentTokenReviews: 1000,
		MaxQueuedAuthorizations:   400,
		MaxLargeWebhookResponses:  8,
		Conversions:               responsewriters.ConversionBounds{Stored: 32 << 20, MaxDocuments: 128 << 20},
		MinProxied:                100,
		MaxProxied:                2000,
		MaxConcurrentServerChecks: 16,
		MaxRewrittenPages:         16,
		MaxAuditObjectBytes:       10 << 20,
		MaxAuditObjectsBytes:      128 << 20,
		MaxAuditQueueBytes:        64 << 20,
		MaxConcurrentAuditPosts:   8,
		Cached:                    lister.Bounds{Objects: 4096, Bytes: 2 << 20},
	}
}
