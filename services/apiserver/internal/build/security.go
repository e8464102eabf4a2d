package build

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/filewatch"
	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/audit/backends"
	"binnacle/services/apiserver/internal/security/audit/policy"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
	"binnacle/services/apiserver/internal/security/authz/modes"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server/overload"
)

// security holds authentication, authorization, flow control and auditing.
type security struct {
	audit *auditing
	authn *authentication
	authz *authorization
	flow  *flowcontrol.Configurator
}

// newSecurity creates authentication, authorization and flow control. auditing exists already.
func newSecurity(
	ctx context.Context,
	base *base,
	options *config.Options,
	caches *caches,
	client *internalclient.Client,
	audit *auditing,
) (*security, error) {
	result := &security{audit: audit, flow: newFlow(base, &options.Requests, caches, client)}
	var err error
	if result.authn, err = newAuthentication(ctx, base, &options.Authentication, options.Serving.KeyFile, caches, client); err != nil {
		return nil, err
	}
	result.authz, err = newAuthorization(base, &options.Authorization, caches)
	return result, err
}

// auditing holds the auditor and its backends.
type auditing struct {
	log      *slog.Logger
	auditor  *audit.Auditor // nil if auditing is off
	file     string         // audit policy file
	policy   []byte         // content of file when the server started
	backends []*backends.Backend
}

// newAuditing reads the audit policy and opens the backends. As in Kubernetes, auditing is off
// unless there are a policy and a backend. limiter limits the concurrent work on large events.
func newAuditing(base *base, auditOptions *config.AuditOptions, limiter audit.Limiter) (*auditing, error) {
	result := &auditing{log: base.log, file: auditOptions.PolicyFile}
	var auditPolicy *policy.Policy
	if auditOptions.PolicyFile != "" {
		var err error
		if result.policy, err = filewatch.Read(auditOptions.PolicyFile); err != nil {
			return nil, fmt.Errorf("--audit-policy-file: loading audit policy file: failed to read file path %q: %w", auditOptions.PolicyFile, err)
		}
		if auditPolicy, err = result.parsePolicy(result.policy); err != nil {
			return nil, fmt.Errorf("--audit-policy-file: loading audit policy file: %w", err)
		}
	}
	metrics := audit.NewMetrics(base.metrics)
	backendConfig := backends.Config{
		Metrics:    metrics,
		Logger:     base.log,
		Dial:       base.egress.DialerFor(egress.ControlPlane),
		Limiter:    limiter,
		QueueBytes: base.limits.MaxAuditQueueBytes,
		MaxPosts:   base.limits.MaxConcurrentAuditPosts,
	}
	if auditOptions.Log.Enabled() && auditPolicy != nil {
		backend, err := backends.NewLog(&auditOptions.Log, backendConfig, os.Stdout)
		if err != nil {
			return nil, err
		}
		result.addBackend(base.lifetime, backend)
	}
	if auditOptions.Webhook.Enabled() && auditPolicy != nil {
		backend, err := backends.NewWebhook(&auditOptions.Webhook, backendConfig)
		if err != nil {
			return nil, fmt.Errorf("initializing audit webhook: %w", err)
		}
		result.addBackend(base.lifetime, backend)
	}
	if len(result.backends) == 0 {
		if auditOptions.Log.Enabled() || auditOptions.Webhook.Enabled() {
			base.log.Warn("no audit policy file was provided; no requests are audited; set --audit-policy-file")
		}
		return result, nil
	}
	maxEvent := int64(0)
	sinks := []audit.Sink{}
	for _, backend := range result.backends {
		maxEvent = max(maxEvent, backend.MaxEvent())
		sinks = append(sinks, backend)
	}
	result.auditor = audit.New(audit.Config{
		Policy:     auditPolicy,
		Sinks:      sinks,
		Metrics:    metrics,
		Logger:     base.log,
		MaxObject:  min(maxEvent, base.limits.MaxAuditObjectBytes),
		MaxObjects: base.limits.MaxAuditObjectsBytes,
		Limiter:    limiter,
		Slow:       auditOptions.LatencyThreshold,
	})
	base.lifetime.inBackground("audit policy", result.followPolicy)
	return result, nil
}

// addBackend adds a backend, and the background task that delivers its queued events.
func (a *auditing) addBackend(lifetime *lifecycle, backend *backends.Backend) {
	a.backends = append(a.backends, backend)
	lifetime.inBackground("audit", backend.Run)
	lifetime.onClose(func() {
		if err := backend.Close(); err != nil {
			a.log.Warn("failed to close the audit log", "error", err)
		}
	})
}

// beginShutdown limits, from now on, how long requests wait for the delivery of their events. So a
// slow backend does not delay the shutdown.
func (a *auditing) beginShutdown() {
	for _, backend := range a.backends {
		backend.BeginShutdown()
	}
}

// parsePolicy parses a policy. Its errors name the file.
func (a *auditing) parsePolicy(data []byte) (*policy.Policy, error) {
	parsed, err := policy.Parse(data, func(reason string) {
		a.log.Warn("ignoring unknown or duplicate fields of the audit policy", "file", a.file, "error", reason)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: from file %s", err, a.file)
	}
	return parsed, nil
}

// followPolicy reloads the policy when its file changes.
func (a *auditing) followPolicy(ctx context.Context) error {
	return filewatch.Follow(ctx, a.log, a.file, a.policy, func(_ context.Context, data []byte, err error) {
		if err != nil {
			a.auditor.SetPolicy(nil, err)
			return
		}
		changed, err := a.parsePolicy(data)
		a.auditor.SetPolicy(changed, err)
	})
}

// authorization holds the chain of authorizers.
type authorization struct {
	policy  *authz.LocalPolicy // RBAC policy and node graph
	chain   *modes.Reloadable
	metrics *authz.Metrics
	changed chan struct{} // receives a value after changes of RBAC objects
	// usesRBAC reports whether the RBAC authorizer or a webhook, which may use roles too, is
	// enabled.
	usesRBAC bool
}

// loadAuthorization returns the configuration of the authorizers from the file, with the content of
// the file, or from the flags.
func loadAuthorization(
	options *config.AuthorizationOptions,
	conditions authzconfig.Conditions,
) (*authzconfig.Configuration, []byte, error) {
	if options.ConfigFile == "" {
		return authzconfig.FromFlags(options.Flags), nil, nil
	}
	data, err := filewatch.Read(options.ConfigFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--authorization-config: %w", err)
	}
	configuration, err := authzconfig.Parse(data, conditions)
	if err != nil {
		return nil, nil, fmt.Errorf("--authorization-config %s: %w", options.ConfigFile, err)
	}
	return configuration, data, nil
}

// rbacResource returns a resource of rbac.authorization.k8s.io.
func rbacResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: rbacv1.GroupName, Resource: name}
}

// waitForRevision waits until the RBAC policy reflects a revision, but not longer than
// policySettleTime. So clients that grant or revoke permissions see the effect immediately.
func (a *authorization) waitForRevision(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, policySettleTime)
	defer cancel()
	_ = a.policy.WaitFor(ctx, revision) // best effort: after the timeout, the change takes effect later
}

// policySettleTime is how long a write of an RBAC object waits, at most, for its effect.
const policySettleTime = 2 * time.Second

// newAuthorization creates the chain of authorizers.
func newAuthorization(base *base, options *config.AuthorizationOptions, caches *caches) (*authorization, error) {
	var conditions *authzwebhook.Compiler
	var err error
	if options.ConfigFile != "" { // flags have no match conditions, and the CEL environment is expensive
		if conditions, err = authzwebhook.NewCompiler(); err != nil {
			return nil, err
		}
	}
	configuration, data, err := loadAuthorization(options, conditions)
	if err != nil {
		return nil, err
	}
	policy, err := policyConfig(base, caches, configuration.Has(authzconfig.Node))
	if err != nil {
		return nil, err
	}
	result := &authorization{
		policy:   authz.NewPolicy(policy),
		metrics:  authz.NewMetrics(base.metrics),
		changed:  make(chan struct{}, 1),
		usesRBAC: configuration.Has(authzconfig.RBAC) || configuration.Has(authzconfig.Webhook),
	}
	result.policy.OnChange(func(rbac.Change) {
		select {
		case result.changed <- struct{}{}:
		default: // a notification is pending
		}
	})
	result.chain, err = modes.New(&modes.Builder{
		Policy:         result.policy,
		Nodes:          configuration.Has(authzconfig.Node),
		FeatureEnabled: base.gates.Enabled,
		Conditions:     conditions,
		Metrics:        result.metrics,
		WebhookMetrics: authzwebhook.NewMetrics(base.metrics),
		MaxWaiting:     base.limits.MaxQueuedAuthorizations,
		Calls:          base.webhookMetrics,
		Dial:           base.egress.DialerFor(egress.ControlPlane),
		Logger:         base.log,
	}, configuration)
	if err != nil {
		return nil, err
	}
	base.lifetime.onClose(result.chain.Close)
	base.lifetime.inBackground("policy", result.policy.Run)
	if options.ConfigFile != "" {
		reloads := modes.NewReloadMetrics(base.metrics, base.address)
		base.lifetime.inBackground("authorization configuration", func(ctx context.Context) error {
			return result.chain.Follow(ctx, options.ConfigFile, data, reloads, base.log)
		})
	}
	return result, nil
}

// policyConfig returns the sources of the objects on which RBAC and, if nodes is set, the node
// authorizer depend.
func policyConfig(base *base, caches *caches, nodes bool) (authz.PolicyConfig, error) {
	source := func(gvr schema.GroupVersionResource) authz.Source {
		kind := caches.lookup(gvr)
		return authz.Source{
			Store: kind.Store,
			Decode: func(entry *objects.Entry) (metav1.Object, error) {
				return kind.Coder.DecodeStored(entry.Stored(), entry.Revision)
			},
		}
	}
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	config := authz.PolicyConfig{
		Cache:  caches.cache,
		Logger: base.log,
		Rules: map[string]authz.Source{
			rbac.KindRole:               source(rbacv1.SchemeGroupVersion.WithResource("roles")),
			rbac.KindClusterRole:        source(rbacv1.SchemeGroupVersion.WithResource("clusterroles")),
			rbac.KindRoleBinding:        source(rbacv1.SchemeGroupVersion.WithResource("rolebindings")),
			rbac.KindClusterRoleBinding: source(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")),
		},
	}
	if nodes {
		pods := source(core("pods"))
		decodeFields, err := caches.core("pods").Coder.FieldsDecoder(node.PodPaths()...)
		if err != nil {
			return config, err
		}
		pods.Decode = func(entry *objects.Entry) (metav1.Object, error) {
			loan := entry.Borrow()
			defer loan.Release()
			return decodeFields(codec.Item{Stored: loan.Value, Revision: entry.Revision})
		}
		config.Nodes = map[node.Kind]authz.Source{
			node.Pod:              pods,
			node.PersistentVolume: source(core("persistentvolumes")),
			node.VolumeAttachment: source(schema.GroupVersionResource{
				Group:    "storage.k8s.io",
				Version:  "v1",
				Resource: "volumeattachments",
			}),
			node.ResourceSlice: source(resourcev1beta1.SchemeGroupVersion.WithResource("resourceslices")),
		}
	}
	return config, nil
}

// waitForNewest waits until the RBAC policy reflects the newest revision of the store, but not
// longer than 10 s. The caller retries after an error.
func (a *authorization) waitForNewest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return a.policy.MostRecent(ctx)
}

// flowResource returns a resource of flowcontrol.apiserver.k8s.io.
func flowResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: name}
}

// newFlow creates the configurator of flow control. Its field Control is nil if priority and
// fairness is disabled.
func newFlow(base *base, requestOptions *config.RequestOptions, caches *caches, client *internalclient.Client) *flowcontrol.Configurator {
	kind := func(name string) lister.CachedResource {
		return caches.lookup(flowcontrolv1.SchemeGroupVersion.WithResource(name))
	}
	dangling := bootstrap.NewDanglingController(client, base.log)
	configurator := flowcontrol.NewConfigurator(kind("prioritylevelconfigurations"), kind("flowschemas"), dangling)
	base.lifetime.whileServing("flow schemas", configurator.Schemas.Run)
	base.lifetime.whileServing("priority levels", configurator.Levels.Run)
	base.lifetime.whileServing("statuses of flow schemas", dangling.Run)
	seats := requestOptions.MaxInFlight + requestOptions.MaxMutatingInFlight
	if !requestOptions.PriorityAndFairness || seats == 0 {
		return configurator
	}
	configurator.Control = flowcontrol.New(flowcontrol.Options{
		Seats:    seats,
		IsExempt: overload.Exempt,
		LoadConfig: func(ctx context.Context) {
			if caches.cache.Ready() {
				configurator.WaitForRevision(ctx, 0)
			}
		},
		MaxWait: 15 * time.Second,
		Metrics: flowcontrol.NewMetrics(base.metrics, requestOptions.MaxInFlight, requestOptions.MaxMutatingInFlight, time.Now),
	})
	base.lifetime.inBackground("flow control", configurator.Control.Run)
	return configurator
}
