package config

import (
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/libs/features"
	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/storage/fanout"
)

// Name is the name of the service, its binary and its certificate.
const Name = "apiserver"

// Short is a one-line description of the service.
const Short = "The Kubernetes API server of binnacle."

// Values of --endpoint-reconciler-type.
const (
	ReconcileLease = "lease"
	ReconcileNone  = "none"
)

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

	AdvertiseAddress      net.IP
	ServiceClusterIPRange string
	ServiceNodePorts      utilnet.PortRange
	KubernetesNodePort    int
	RuntimeConfig         builtin.RuntimeConfig
	EventTTL              time.Duration
	MinRequestTimeout     int
	MaxInFlight           int
	MaxMutatingInFlight   int
	PriorityAndFairness   bool
	AllowedOrigins        []string
	GoawayChance          float64
	HSTS                  []string
	AllowPrivileged       bool
	// AggregatorRouting connects to the endpoints of services instead of their cluster IPs.
	AggregatorRouting bool
	Peers             PeerOptions
	// ProxyClient is the client certificate for extension servers and peers. RejectRedirects
	// rejects redirects of extension servers.
	ProxyClient     struct{ CertFile, KeyFile string }
	RejectRedirects bool
	Profiling       bool
	// ContentionProfiling enables the block and mutex profiles. DebugSocket is the Unix socket that
	// serves profiles. LogFiles serves /logs.
	ContentionProfiling bool
	DebugSocket         string
	LogFiles            bool
	ExternalHostname    string
	// EndpointReconciler selects how the endpoints of the kubernetes service are maintained.
	EndpointReconciler      string
	GarbageCollector        bool
	DeleteCollectionWorkers int
	Compatibility           CompatibilityOptions

	ServiceRanges []*net.IPNet
	// Host is the name of this machine; empty means the hostname of the operating system. Tests
	// give replicas on one machine different names.
	Host string
	// WrapSource, if set, wraps the change stream that feeds the cache.
	WrapSource func(watchcache.Source) watchcache.Source

	flags *options.Sections // set by AddFlags; /flagz shows them
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Serving: serving.NewOptions(Name, 6443),
		Fanout:  fanout.NewOptions(),
		Etcd: EtcdOptions{
			Backend: BackendEtcd, Prefix: "/registry", CompactionInterval: 5 * time.Minute, LeaseReuseSeconds: 60, HealthTimeout: defaultHealthTimeout, ReadyTimeout: defaultHealthTimeout, DataDir: "binnacle.data", Embedded: newEmbeddedEtcdOptions(),
		},
		Authentication: newAuthenticationOptions(),
		Authorization:  newAuthorizationOptions(),
		Admission:      AdmissionOptions{TypeChecks: true},
		Features:       features.New(),
		Upstream:       kubeletproxy.NewOptions(),
		Audit:          newAuditOptions(),
		// Below the ephemeral ports of common systems.
		ServiceNodePorts: utilnet.PortRange{Base: 30000, Size: 2768},
		EventTTL:         time.Hour, MinRequestTimeout: 1800, MaxInFlight: 400, MaxMutatingInFlight: 200, PriorityAndFairness: true,
		GarbageCollector: true, DeleteCollectionWorkers: 1, EndpointReconciler: ReconcileLease,
	}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.flags = s
	g := s.Set("generic")
	g.IPVar(&o.AdvertiseAddress, "advertise-address", nil, "The IP address on which to advertise the apiserver to members of the cluster. If blank, --bind-address is used; if that is unspecified or a loopback address, the host's default interface.")
	g.IntVar(&o.MinRequestTimeout, "min-request-timeout", o.MinRequestTimeout, "The minimum number of seconds a watch is kept open that names no timeout; it ends at a random time up to twice as long.")
	g.IntVar(&o.MaxInFlight, "max-requests-inflight", o.MaxInFlight, "The maximum number of non-mutating requests in flight at a time; 0 for no limit. With --enable-priority-and-fairness the sum of both maxima is what is shared.")
	g.IntVar(&o.MaxMutatingInFlight, "max-mutating-requests-inflight", o.MaxMutatingInFlight, "The maximum number of mutating requests in flight at a time; 0 for no limit.")
	g.BoolVar(&o.PriorityAndFairness, "enable-priority-and-fairness", true, "Share the server among its clients by FlowSchemas and PriorityLevelConfigurations, instead of bounding requests in flight alone.")
	g.DurationVar(&o.Serving.RequestTimeout, "request-timeout", time.Minute, "How long a request may take that is not long-running.")
	g.StringSliceVar(&o.AllowedOrigins, "cors-allowed-origins", nil, "Regular expressions of origins that browsers may call from, each anchored to the start of the host by '^' or '//' and to its end by '$' or ':'. If empty, CORS is off.")
	g.Float64Var(&o.GoawayChance, "goaway-chance", 0, "The chance with which an HTTP/2 connection is closed after a request, so that clients spread over replicas; 0 to 0.02.")
	g.StringSliceVar(&o.HSTS, "strict-transport-security-directives", nil, "Directives of the Strict-Transport-Security header.")
	g.Var(&o.RuntimeConfig, "runtime-config", "Versions of the API, and single resources of them, to switch on and off: api/all, api/ga, api/beta, api/alpha, v1 for the core group, <group>/<version>, <group>/<version>/<resource>; each with =true or =false.")
	g.Var(o.Features, "feature-gates", features.Help())
	g.BoolVar(&o.Profiling, "profiling", true, "Serve profiles at /debug/pprof/ to clients with permission to read that path.")
	g.BoolVar(&o.ContentionProfiling, "contention-profiling", false, "With --profiling, profile lock contention.")
	g.StringVar(&o.DebugSocket, "debug-socket-path", "", "Unix socket that serves profiles without authorization. Only the user of the server can open it.")
	g.StringVar(&o.ExternalHostname, "external-hostname", "", "Hostname advertised in discovery, with or without a port. Defaults to --advertise-address.")
	g.IntVar(&o.DeleteCollectionWorkers, "delete-collection-workers", 1, "Number of objects that the deletion of a collection deletes concurrently.")
	g.BoolVar(&o.GarbageCollector, "enable-garbage-collector", true, "Whether deletions leave it to the garbage collector what becomes of dependents. It must be what the controller manager has.")
	o.Serving.AddFlags(s)
	o.Etcd.addFlags(s)
	o.Encryption.addFlags(s)
	addFanoutFlags(s.Set("fan-out"), &o.Fanout)
	o.Memory.addFlags(s)
	o.Audit.addFlags(s)
	o.Authentication.addFlags(s)
	o.Authorization.addFlags(s)
	o.Admission.addFlags(s)
	o.Metrics.AddFlags(s.Set("metrics"))
	o.Tracing.AddFlags(s.Set("traces"))
	m := s.Set("misc")
	addKubeletFlags(m, &o.Upstream)
	m.StringVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", "10.0.0.0/24", "CIDR ranges of the addresses of services, at most one of each family.")
	m.Var(&o.ServiceNodePorts, "service-node-port-range", "The ports of services of type NodePort and LoadBalancer, inclusive at both ends. They must not overlap with the ephemeral ports of nodes.")
	m.IntVar(&o.KubernetesNodePort, "kubernetes-service-node-port", 0, "If not 0, the kubernetes service is of type NodePort, with this port.")
	m.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "How long events are kept.")
	m.BoolVar(&o.AggregatorRouting, "enable-aggregator-routing", false, "Reach the services of webhooks and of extension servers at their endpoints instead of at their cluster addresses.")
	m.BoolVar(&o.RejectRedirects, "aggregator-reject-forwarding-redirect", true, "Refuse redirects of extension servers instead of passing them on to clients.")
	m.StringVar(&o.ProxyClient.CertFile, "proxy-client-cert-file", "", "Client certificate for requests to extension servers and peers, which then trust the user headers. Its CA is that of --requestheader-client-ca-file. Reloaded when it changes.")
	m.StringVar(&o.ProxyClient.KeyFile, "proxy-client-key-file", "", "Private key of --proxy-client-cert-file.")
	m.BoolVar(&o.LogFiles, "enable-logs-handler", false, "Serve the files in /var/log at /logs/ to clients with permission to read that path.")
	m.StringVar(&o.EndpointReconciler, "endpoint-reconciler-type", ReconcileLease, "Reconciler of the endpoints of the kubernetes service: lease (live replicas), none, or master-count (the same as lease).")
	o.Peers.addFlags(m)
	o.Compatibility.addFlags(s)
	m.BoolVar(&o.AllowPrivileged, "allow-privileged", false, "If true, allow privileged containers.")
}

// FlagValues returns the names and values of all flags; nil before AddFlags.
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
	for _, r := range strings.Split(o.ServiceClusterIPRange, ",") {
		_, n, err := net.ParseCIDR(strings.TrimSpace(r))
		if err != nil {
			return fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		o.ServiceRanges = append(o.ServiceRanges, n)
	}
	if o.AdvertiseAddress == nil {
		o.AdvertiseAddress = advertised(o.Serving.BindAddress)
	}
	o.Authentication.restrictAnonymous(&o.Authorization)
	o.Admission.mayAuthorizeNodes = o.Authorization.mayAuthorizeNodes()
	hinted, err := o.Authentication.complete()
	if err != nil {
		return err
	}
	o.Serving.ExtraClientCAs = append(o.Serving.ExtraClientCAs, hinted...)
	o.Serving.AdvertiseAddress = o.AdvertiseAddress
	o.Serving.AlternateNames = append(o.Serving.AlternateNames,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", serviceAddress(o.ServiceRanges[0]))
	return o.Serving.Complete()
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
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
	if o.Features.Enabled(features.AuthorizeNodeWithSelectors) && !o.Features.Enabled(features.AuthorizeWithSelectors) {
		bad("%s feature requires %s feature to be enabled", features.AuthorizeNodeWithSelectors, features.AuthorizeWithSelectors)
	}
	if o.MinRequestTimeout < 0 || o.MaxInFlight < 0 || o.MaxMutatingInFlight < 0 || o.Serving.RequestTimeout < 0 || o.EventTTL <= 0 {
		errs = append(errs, errors.New("--min-request-timeout, --max-requests-inflight, --max-mutating-requests-inflight, --request-timeout must not be negative, --event-ttl must be positive"))
	}
	if o.Etcd.HealthTimeout < 0 || o.Etcd.ReadyTimeout < 0 {
		bad("--etcd-healthcheck-timeout and --etcd-readycheck-timeout must not be negative")
	}
	if !slices.Contains([]string{ReconcileLease, ReconcileNone, "master-count"}, o.EndpointReconciler) {
		bad("--endpoint-reconciler-type must be lease, none or master-count, got %q", o.EndpointReconciler)
	}
	if o.GoawayChance < 0 || o.GoawayChance > 0.02 {
		bad("--goaway-chance %v is not within 0 and 0.02", o.GoawayChance)
	}
	if len(o.ServiceRanges) > 2 || len(o.ServiceRanges) == 2 && (o.ServiceRanges[0].IP.To4() == nil) == (o.ServiceRanges[1].IP.To4() == nil) {
		bad("--service-cluster-ip-range %q: at most one range of each family", o.ServiceClusterIPRange)
	}
	for _, r := range o.ServiceRanges {
		if ones, bits := r.Mask.Size(); bits-ones > 64 || bits-ones < 3 {
			bad("--service-cluster-ip-range %q: a range must have at least 8 addresses, and a prefix of at least 64 bits for IPv6", r)
		}
	}
	if o.KubernetesNodePort != 0 && !o.ServiceNodePorts.Contains(o.KubernetesNodePort) {
		bad("--kubernetes-service-node-port %d is not within --service-node-port-range %s", o.KubernetesNodePort, o.ServiceNodePorts.String())
	}
	if o.ServiceNodePorts.Size < 1 {
		bad("--service-node-port-range is empty")
	}
	if all, err := builtin.Everything(registry.Settings{}); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, o.RuntimeConfig.Validate(all)...)
	}
	errs = append(errs, server.CheckOrigins(o.AllowedOrigins)...)
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
