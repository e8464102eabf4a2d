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
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/rbacescalation"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
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
	// fileData is the content of the configuration file in use; nil without a file.
	fileData []byte
	reloads  *modes.ReloadMetrics
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

// waitForPolicy waits until the authorizer has seen a revision, so that clients that grant or
// revoke permissions see the effect at once.
func (p *parts) waitForPolicy(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, policySettleTime)
	defer cancel()
	_ = p.authz.policy.WaitFor(ctx, revision) // best effort: after the timeout, the change takes effect later
}

const policySettleTime = 2 * time.Second

func (p *parts) buildAuthorization(context.Context) error {
	o, a, gates := &p.options.Authorization, &p.authz, p.options.Features
	var conditions *webhook.Compiler
	var err error
	if o.ConfigFile != "" { // flags have no match conditions, and the CEL environment is expensive
		if conditions, err = webhook.NewCompiler(); err != nil {
			return err
		}
	}
	c, data, err := loadAuthorization(o, conditions)
	if err != nil {
		return err
	}
	a.fileData, a.usesRBAC = data, c.Has(authzconfig.RBAC) || c.Has(authzconfig.Webhook)
	policy, err := p.policyConfig(c.Has(authzconfig.Node))
	if err != nil {
		return err
	}
	a.policy = authz.NewPolicy(policy)
	a.changed = make(chan struct{}, 1)
	a.policy.OnChange(func(rbac.Change) {
		select {
		case a.changed <- struct{}{}:
		default: // a notification is pending
		}
	})
	a.metrics = authz.NewMetrics(p.metrics)
	a.chain, err = modes.New(&modes.Builder{
		Policy: a.policy, Nodes: c.Has(authzconfig.Node), FeatureEnabled: gates.Enabled,
		Conditions: conditions, Metrics: a.metrics,
		WebhookMetrics: webhook.NewMetrics(p.metrics), Calls: p.calls, Dial: p.egress.To(egress.ControlPlane), Logger: p.log,
	}, c)
	if err != nil {
		return err
	}
	p.life.onClose(a.chain.Close)
	if o.ConfigFile != "" {
		a.reloads = modes.NewReloadMetrics(p.metrics, p.base.address)
	}
	return nil
}

// policyConfig returns the sources of the objects that RBAC and the node authorizer follow.
func (p *parts) policyConfig(nodes bool) (authz.PolicyConfig, error) {
	source := func(gvr schema.GroupVersionResource) authz.Source {
		kind := p.catalog.Resource(gvr)
		coder := p.codec.Of(kind)
		return authz.Source{
			Store: p.cached(apiset.KeyPrefix(p.base.root, kind)),
			Decode: func(e *watchcache.Entry) (metav1.Object, error) {
				return coder.DecodeStored(e.Stored(), e.Revision)
			},
		}
	}
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	c := authz.PolicyConfig{
		Cache: p.cache, Logger: p.log,
		Rules: map[string]authz.Source{
			rbac.KindRole:               source(rbacv1.SchemeGroupVersion.WithResource("roles")),
			rbac.KindClusterRole:        source(rbacv1.SchemeGroupVersion.WithResource("clusterroles")),
			rbac.KindRoleBinding:        source(rbacv1.SchemeGroupVersion.WithResource("rolebindings")),
			rbac.KindClusterRoleBinding: source(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")),
		},
	}
	if nodes {
		pods := source(core("pods"))
		coder := p.codec.Of(p.catalog.Resource(core("pods")))
		partly, err := coder.Partly(node.PodPaths()...)
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

// escalation returns the plugin that prevents users from granting permissions that they do not
// have. It cannot be disabled.
func (p *parts) escalation() admission.Plugin {
	return admission.Plugin{
		Name: rbacescalation.Name, Plugin: &rbacescalation.Plugin{Policy: p.authz.policy.Engine, Authorizer: p.authz.chain},
	}
}

// policyTasks returns tasks that follow the objects of the authorizers and reload the configuration
// file.
func (p *parts) policyTasks() []task.Task {
	a := &p.authz
	tasks := []task.Task{{Name: "policy", Run: a.policy.Run}}
	if a.reloads != nil {
		tasks = append(tasks, task.Task{Name: "authorization configuration", Run: func(ctx context.Context) error {
			return a.chain.Follow(ctx, p.options.Authorization.ConfigFile, a.fileData, a.reloads, p.log)
		}})
	}
	return tasks
}

// roleAggregator returns the task that updates aggregated cluster roles.
func (p *parts) roleAggregator() task.Task {
	g := &bootstrap.Aggregator{API: p.client, Policy: p.authz.policy.Engine, Logger: p.log, Changed: p.authz.changed}
	return task.Task{Name: "aggregated cluster roles", Run: g.Run}
}

// policySynced waits until the authorizer has seen all RBAC objects. The wait is bounded, because
// bootstrapping is retried.
func (p *parts) policySynced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return p.authz.policy.MostRecent(ctx)
}
