package bootstrap

import (
	"context"
	_ "embed" // the default roles
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/features"
	"binnacle/libs/rbac"
	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

//go:embed rbac-defaults.json
var rbacDefaults []byte

const (
	// autoUpdate is the annotation of a default object with which an administrator stops its
	// reconciliation ("false").
	autoUpdate = "rbac.authorization.kubernetes.io/autoupdate"
	// bootstrapLabel and bootstrapValue are the label of all default objects.
	bootstrapLabel = "kubernetes.io/bootstrapping"
	bootstrapValue = "rbac-defaults"
	// maxRoleWrites is the maximum number of concurrent writes.
	maxRoleWrites = 16
)

// policyObjects holds roles and bindings of all kinds.
type policyObjects struct {
	ClusterRoles        []*rbacv1.ClusterRole
	Roles               []*rbacv1.Role
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	RoleBindings        []*rbacv1.RoleBinding
}

// defaultPolicy returns the default roles and bindings for the enabled feature gates. Aggregated
// roles have the rules of the roles that they select.
func defaultPolicy(enabled func(features.Gate) bool) (*policyObjects, error) {
	defaults, err := readDefaults(enabled)
	if err != nil {
		return nil, err
	}
	engine := rbac.New()
	engine.Update(func(transaction *rbac.Tx) {
		for _, role := range defaults.ClusterRoles {
			transaction.Set(role)
		}
	})
	// An aggregated role may be part of another one, so aggregation needs several rounds.
	for stale := engine.Snapshot().Stale(); len(stale) > 0; stale = engine.Snapshot().Stale() {
		engine.Update(func(transaction *rbac.Tx) {
			for _, role := range defaults.ClusterRoles {
				if rules, ok := stale[role.Name]; ok {
					role.Rules = rules
					transaction.Set(role)
				}
			}
		})
	}
	for _, object := range defaults.rolesThenBindings() {
		labels := map[string]string{bootstrapLabel: bootstrapValue}
		maps.Copy(labels, object.GetLabels())
		object.SetLabels(labels)
		object.SetAnnotations(map[string]string{autoUpdate: "true"})
	}
	return defaults, nil
}

// rolesThenBindings returns all roles, and then all bindings, which refer to them.
func (p *policyObjects) rolesThenBindings() []registry.Object {
	var out []registry.Object
	for _, o := range p.ClusterRoles {
		out = append(out, o)
	}
	for _, o := range p.Roles {
		out = append(out, o)
	}
	for _, o := range p.ClusterRoleBindings {
		out = append(out, o)
	}
	for _, o := range p.RoleBindings {
		out = append(out, o)
	}
	return out
}

// policyPath returns the collection that contains a role or binding.
func policyPath(object registry.Object) internalclient.Ref {
	resource := map[string]string{
		rbac.KindRole: "roles", rbac.KindClusterRole: "clusterroles",
		rbac.KindRoleBinding: "rolebindings", rbac.KindClusterRoleBinding: "clusterrolebindings",
	}[rbac.KindOf(object)]
	return internalclient.Collection(rbacv1.GroupName, "v1", resource, object.GetNamespace())
}

// reconcileRoles migrates roles of older versions, creates the default roles and bindings, adds
// missing parts to existing ones, and waits until the RBAC authorizer of this server has them.
func (b *Bootstrap) reconcileRoles(ctx context.Context) error {
	target, err := defaultPolicy(b.FeatureEnabled)
	if err != nil {
		return err
	}
	if err := b.migrate(ctx, target); err != nil {
		return err
	}
	live, err := b.livePolicy(ctx)
	if err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(maxRoleWrites)
	for _, o := range target.rolesThenBindings() {
		group.Go(func() error { return b.reconcileRole(gctx, o, live[policyPath(o).Named(o.GetName())]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return b.PolicySeen(ctx)
}

// livePolicy returns the stored roles and bindings with the label bootstrapLabel, by path.
func (b *Bootstrap) livePolicy(ctx context.Context) (map[internalclient.Ref]registry.Object, error) {
	var clusterRoles rbacv1.ClusterRoleList
	var roles rbacv1.RoleList
	var clusterRoleBindings rbacv1.ClusterRoleBindingList
	var roleBindings rbacv1.RoleBindingList
	for resource, list := range map[string]any{"clusterroles": &clusterRoles, "roles": &roles, "clusterrolebindings": &clusterRoleBindings, "rolebindings": &roleBindings} {
		if err := b.API.List(ctx, internalclient.Collection(rbacv1.GroupName, "v1", resource, ""), map[string]string{bootstrapLabel: bootstrapValue}, list); err != nil {
			return nil, err
		}
	}
	live := map[internalclient.Ref]registry.Object{}
	add := func(o registry.Object) { live[policyPath(o).Named(o.GetName())] = o }
	for i := range clusterRoles.Items {
		add(&clusterRoles.Items[i])
	}
	for i := range roles.Items {
		add(&roles.Items[i])
	}
	for i := range clusterRoleBindings.Items {
		add(&clusterRoleBindings.Items[i])
	}
	for i := range roleBindings.Items {
		add(&roleBindings.Items[i])
	}
	return live, nil
}

// reconcileRole creates a role or binding, or adds the missing parts to the stored one. live is the
// stored object as far as it is known: it may be outdated, or nil although the object exists. After
// a conflict, reconcileRole reads the object and tries again.
func (b *Bootstrap) reconcileRole(ctx context.Context, target, live registry.Object) error {
	collection := policyPath(target)
	for range 5 {
		var err error
		switch {
		case live == nil:
			err = b.API.Create(ctx, collection, target)
		case addMissing(live, target):
			return nil
		default:
			err = b.writeRole(ctx, collection, live)
		}
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
		live = target.DeepCopyObject().(registry.Object)
		if err = b.API.Get(ctx, collection.Named(target.GetName()), live); apierrors.IsNotFound(err) {
			live = nil
		} else if err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: too many conflicting updates", collection.Named(target.GetName()))
}

// writeRole writes a changed role or binding. If it has no resourceVersion, writeRole deletes and
// recreates the object, because the roleRef of a binding is immutable; see addSubjects.
func (b *Bootstrap) writeRole(ctx context.Context, collection internalclient.Ref, changed registry.Object) error {
	path := collection.Named(changed.GetName())
	if changed.GetResourceVersion() != "" {
		return b.API.Update(ctx, path, changed, nil)
	}
	if err := b.API.Delete(ctx, path, nil); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return b.API.Create(ctx, collection, changed)
}

// addMissing adds the labels, annotations, rules and subjects that live lacks. It reports whether
// it left live unchanged. It clears the resourceVersion of an object that must be recreated.
func addMissing(live, target registry.Object) bool {
	if live.GetAnnotations()[autoUpdate] == "false" {
		return true
	}
	unchanged := true
	add := func(existing, desired map[string]string, set func(map[string]string)) {
		merged := maps.Clone(desired)
		maps.Copy(merged, existing)
		if len(merged) != len(existing) {
			set(merged)
			unchanged = false
		}
	}
	add(live.GetLabels(), target.GetLabels(), live.SetLabels)
	add(live.GetAnnotations(), target.GetAnnotations(), live.SetAnnotations)
	switch object := live.(type) {
	case *rbacv1.ClusterRole:
		target := target.(*rbacv1.ClusterRole)
		if target.AggregationRule != nil { // RoleAggregator maintains its rules
			return addSelectors(object, target.AggregationRule) && unchanged
		}
		return addRules(&object.Rules, target.Rules) && unchanged
	case *rbacv1.Role:
		return addRules(&object.Rules, target.(*rbacv1.Role).Rules) && unchanged
	case *rbacv1.ClusterRoleBinding:
		target := target.(*rbacv1.ClusterRoleBinding)
		return addSubjects(object, &object.RoleRef, &object.Subjects, target.RoleRef, target.Subjects) && unchanged
	case *rbacv1.RoleBinding:
		target := target.(*rbacv1.RoleBinding)
		return addSubjects(object, &object.RoleRef, &object.Subjects, target.RoleRef, target.Subjects) && unchanged
	}
	return unchanged
}

// addRules adds the missing rules and reports whether it left the list unchanged.
func addRules(rules *[]rbacv1.PolicyRule, target []rbacv1.PolicyRule) (unchanged bool) {
	covered, missing := rbac.Covers(*rules, target)
	*rules = append(*rules, missing...)
	return covered
}

// addSelectors adds the missing selectors and reports whether it left the role unchanged.
func addSelectors(live *rbacv1.ClusterRole, target *rbacv1.AggregationRule) (unchanged bool) {
	if live.AggregationRule == nil {
		live.AggregationRule = &rbacv1.AggregationRule{}
	}
	selectors := &live.AggregationRule.ClusterRoleSelectors
	unchanged = true
	for _, w := range target.ClusterRoleSelectors {
		if !slices.ContainsFunc(*selectors, func(s metav1.LabelSelector) bool { return semantic.Equal(s, w) }) {
			*selectors = append(*selectors, w)
			unchanged = false
		}
	}
	return unchanged
}

// addSubjects adds the missing subjects and reports whether it left the binding unchanged. If the
// binding refers to another role, it clears the resourceVersion, so that the binding is recreated.
func addSubjects(
	live registry.Object,
	ref *rbacv1.RoleRef,
	subjects *[]rbacv1.Subject,
	wantRef rbacv1.RoleRef,
	target []rbacv1.Subject,
) (unchanged bool) {
	unchanged = true
	for _, w := range target {
		if w.Kind != rbacv1.ServiceAccountKind {
			w.APIGroup = rbacv1.GroupName
		}
		if !slices.Contains(*subjects, w) {
			*subjects = append(*subjects, w)
			unchanged = false
		}
	}
	if *ref != wantRef {
		*ref = wantRef
		live.SetResourceVersion("")
		live.SetUID("")
		unchanged = false
	}
	return unchanged
}

// aggregationRetry is the delay before a failed write is retried.
const aggregationRetry = time.Second

// RoleAggregator maintains the rules of aggregated cluster roles. kube-controller-manager does the
// same, but a cluster may run without it. Both write the same rules.
type RoleAggregator struct {
	API    *internalclient.Client
	Policy interface{ Snapshot() *rbac.Snapshot }
	Logger *slog.Logger
	// Changed receives a value after changes of the policy.
	Changed <-chan struct{}
}

// Run maintains the rules until ctx is canceled.
func (g *RoleAggregator) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.Changed:
		case <-retry.C:
		}
		for name, rules := range g.Policy.Snapshot().Stale() {
			err := writeAggregatedRules(ctx, g.API, name, rules)
			if err != nil && ctx.Err() == nil {
				if !apierrors.IsConflict(err) { // a conflict means that Changed will receive soon
					g.Logger.Error("failed to aggregate a cluster role; retrying", "clusterRole", name, "error", err)
				}
				retry.Reset(aggregationRetry)
			}
		}
	}
}

// writeAggregatedRules writes the rules of a cluster role if the role is still aggregated.
func writeAggregatedRules(ctx context.Context, client *internalclient.Client, name string, rules []rbacv1.PolicyRule) error {
	path := internalclient.Collection(rbacv1.GroupName, "v1", "clusterroles", "").Named(name)
	var live rbacv1.ClusterRole
	if err := client.GetCached(ctx, path, &live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if live.AggregationRule == nil {
		return nil
	}
	live.Rules = rules
	return client.Update(ctx, path, &live, nil)
}
