// Package clusterroles fills the rules of aggregated cluster roles: the rules of all cluster roles
// that their selectors match (specification: aggregated cluster roles).
//
// Package app runs a Controller on the leader.
package clusterroles

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/kubeclient"
	"binnacle/services/controllers/internal/workers"
)

// Name is the name of the controller in --controllers, and its field manager.
const Name = "clusterrole-aggregation-controller"

// workerCount is the number of workers.
const workerCount = 5

// Config configures a Controller.
type Config struct {
	Roles kubeclient.Interface[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList]
	Log   *slog.Logger
	// Queues provides the metrics of the work queue; may be nil.
	Queues workqueue.MetricsProvider
}

// Controller aggregates cluster roles. It is used once.
type Controller struct {
	Config
	roles cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[string]
}

// New returns an idle controller.
func New(c Config) *Controller {
	roles := workers.NewInformer(c.Roles, &rbacv1.ClusterRole{}, "", 0, cache.Indexers{})
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "ClusterRoleAggregator", MetricsProvider: c.Queues})
	return &Controller{Config: c, roles: roles, queue: queue}
}

// Run works until ctx ends, and returns when its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	if err := c.roles.SetTransform(workers.StripMetadata); err != nil {
		return err
	}
	// There are few cluster roles, so every change queues all aggregated ones.
	handler, err := c.roles.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.enqueueAggregated() },
		UpdateFunc: func(any, any) { c.enqueueAggregated() },
		DeleteFunc: func(any) { c.enqueueAggregated() },
	})
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.roles.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		workers.Run(ctx, workers.Config[string]{Name: Name, Queue: c.queue, Count: workerCount, Log: c.Log, Sync: c.sync})
	}
	return nil
}

// enqueueAggregated queues all aggregated cluster roles.
func (c *Controller) enqueueAggregated() {
	for _, r := range c.sortedRoles() {
		if r.AggregationRule != nil {
			c.queue.Add(r.Name)
		}
	}
}

// sortedRoles returns the cluster roles by name.
func (c *Controller) sortedRoles() []*rbacv1.ClusterRole {
	var out []*rbacv1.ClusterRole
	for _, obj := range c.roles.GetStore().List() {
		if r, ok := obj.(*rbacv1.ClusterRole); ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// sync writes the rules of an aggregated cluster role if they have changed.
func (c *Controller) sync(ctx context.Context, name string) error {
	obj, ok, err := c.roles.GetStore().GetByKey(name)
	if err != nil || !ok {
		return err
	}
	role, ok := obj.(*rbacv1.ClusterRole)
	if !ok || role.AggregationRule == nil {
		return nil
	}
	rules, err := aggregateRules(role, c.sortedRoles())
	if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
		return err
	}
	data, err := json.Marshal(newConfiguration(role, rules))
	if err != nil {
		return err
	}
	force := true
	_, err = c.Roles.Patch(ctx, name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: Name, Force: &force})
	return err
}

// applyConfiguration holds the fields of a cluster role that this controller applies.
type applyConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        applyMetadata       `json:"metadata"`
	Rules           []rbacv1.PolicyRule `json:"rules,omitempty"`
}

// applyMetadata has the uid, so that the request does not create a role that was deleted meanwhile.
type applyMetadata struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

func newConfiguration(role *rbacv1.ClusterRole, rules []rbacv1.PolicyRule) *applyConfiguration {
	return &applyConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		Metadata: applyMetadata{Name: role.Name, UID: role.UID}, Rules: rules,
	}
}

// aggregateRules returns the rules of the cluster roles that the selectors of a role match, in the
// order of selectors and names, without duplicates.
func aggregateRules(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	rules := []rbacv1.PolicyRule{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, clusterRole := range all {
			if clusterRole.Name == role.Name || !selector.Matches(labels.Set(clusterRole.Labels)) {
				continue
			}
			for _, rule := range clusterRole.Rules {
				equal := func(k rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(k, rule) }
				if !slices.ContainsFunc(rules, equal) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}
