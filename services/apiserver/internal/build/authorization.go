package build

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/filewatch"
	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
	"binnacle/services/apiserver/internal/security/authz/modes"
	"binnacle/services/apiserver/internal/security/authz/webhook"
)

// authorization holds the authorizers.
type authorization struct {
	policy  *authz.Policy
	chain   *modes.Reloadable
	metrics *authz.Metrics
	changed chan struct{} // receives after changes of RBAC objects
	// usesRBAC reports whether roles decide on requests, in process or in a webhook.
	usesRBAC bool
}

// loadAuthorization returns the configuration from the file, with its content, or from the flags.
func loadAuthorization(o *config.AuthorizationOptions, conditions authzconfig.Conditions) (*authzconfig.Configuration, []byte, error) {
	if o.ConfigFile == "" {
		return authzconfig.FromFlags(o.Flags), nil, nil
	}
	data, err := filewatch.Read(o.ConfigFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--authorization-config: %w", err)
	}
	c, err := authzconfig.Parse(data, conditions)
	if err != nil {
		return nil, nil, fmt.Errorf("--authorization-config %s: %w", o.ConfigFile, err)
	}
	return c, data, nil
}

func rbacResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: rbacv1.GroupName, Resource: name}
}

// settled waits until the authorizer has seen a revision, so that clients that grant or
// revoke permissions see the effect at once.
func (a *authorization) settled(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, policySettleTime)
	defer cancel()
	_ = a.policy.WaitFor(ctx, revision) // best effort: after the timeout, the change takes effect later
}

const policySettleTime = 2 * time.Second

func newAuthorization(b *base, o *config.AuthorizationOptions, k *caches) (*authorization, error) {
	var conditions *webhook.Compiler
	var err error
	if o.ConfigFile != "" { // flags have no match conditions, and the CEL environment is expensive
		if conditions, err = webhook.NewCompiler(); err != nil {
			return nil, err
		}
	}
	c, data, err := loadAuthorization(o, conditions)
	if err != nil {
		return nil, err
	}
	policy, err := policyConfig(b, k, c.Has(authzconfig.Node))
	if err != nil {
		return nil, err
	}
	a := &authorization{
		policy: authz.NewPolicy(policy), metrics: authz.NewMetrics(b.metrics), changed: make(chan struct{}, 1),
		usesRBAC: c.Has(authzconfig.RBAC) || c.Has(authzconfig.Webhook),
	}
	a.policy.OnChange(func(rbac.Change) {
		select {
		case a.changed <- struct{}{}:
		default: // a notification is pending
		}
	})
	a.chain, err = modes.New(&modes.Builder{
		Policy: a.policy, Nodes: c.Has(authzconfig.Node), FeatureEnabled: b.gates.Enabled,
		Conditions: conditions, Metrics: a.metrics,
		WebhookMetrics: webhook.NewMetrics(b.metrics), MaxWaiting: b.bounds.AuthorizationWaits, Calls: b.calls, Dial: b.egress.To(egress.ControlPlane), Logger: b.log,
	}, c)
	if err != nil {
		return nil, err
	}
	b.life.onClose(a.chain.Close)
	b.life.inBackground("policy", a.policy.Run)
	if o.ConfigFile != "" {
		reloads := modes.NewReloadMetrics(b.metrics, b.address)
		b.life.inBackground("authorization configuration", func(ctx context.Context) error {
			return a.chain.Follow(ctx, o.ConfigFile, data, reloads, b.log)
		})
	}
	return a, nil
}

// policyConfig returns the sources of the objects that RBAC and the node authorizer follow.
func policyConfig(b *base, k *caches, nodes bool) (authz.PolicyConfig, error) {
	source := func(gvr schema.GroupVersionResource) authz.Source {
		kind := k.lookup(gvr)
		return authz.Source{
			Store: kind.Store,
			Decode: func(e *watchcache.Entry) (metav1.Object, error) {
				return kind.Coder.DecodeStored(e.Stored(), e.Revision)
			},
		}
	}
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	c := authz.PolicyConfig{
		Cache: k.cache, Logger: b.log,
		Rules: map[string]authz.Source{
			rbac.KindRole:               source(rbacv1.SchemeGroupVersion.WithResource("roles")),
			rbac.KindClusterRole:        source(rbacv1.SchemeGroupVersion.WithResource("clusterroles")),
			rbac.KindRoleBinding:        source(rbacv1.SchemeGroupVersion.WithResource("rolebindings")),
			rbac.KindClusterRoleBinding: source(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")),
		},
	}
	if nodes {
		pods := source(core("pods"))
		partly, err := k.core("pods").Coder.Partly(node.PodPaths()...)
		if err != nil {
			return c, err
		}
		pods.Decode = func(e *watchcache.Entry) (metav1.Object, error) {
			l := e.Lend()
			defer l.Back()
			return partly(codec.Item{Stored: l.Value, Revision: e.Revision})
		}
		c.Nodes = map[node.Kind]authz.Source{
			node.Pod:        pods,
			node.Volume:     source(core("persistentvolumes")),
			node.Attachment: source(schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattachments"}),
			node.Slice:      source(resourcev1beta1.SchemeGroupVersion.WithResource("resourceslices")),
		}
	}
	return c, nil
}

// synced waits until the authorizer has seen all RBAC objects. The wait is bounded, because
// bootstrapping is retried.
func (a *authorization) synced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return a.policy.MostRecent(ctx)
}
