package authz

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
)

// Suite grants the suite's own services the permissions that they need to start, before any role
// exists and regardless of the other authorizers. It grants nothing else. It allows or has no
// opinion.
type Suite struct{ services map[string]suiteRules }

// suiteRules holds the permissions of a service: in the cluster, and in namespaces.
type suiteRules struct {
	cluster    *rbac.RuleSet
	namespaces map[string]*rbac.RuleSet
}

// NewSuite returns the compiled rules.
func NewSuite() *Suite {
	const core, leases = "", "coordination.k8s.io"
	read := "get list watch"
	leader := func(name string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{
			fixed(leases, "leases", "create"),
			named(leases, "leases", "get update patch", name),
			fixed(core, "events", "create patch update"),
			fixed("events.k8s.io", "events", "create patch update"),
		}
	}
	health := rbacv1.PolicyRule{NonResourceURLs: []string{"/healthz", "/livez", "/readyz", "/version"}, Verbs: []string{"get"}}
	only := func(rules ...rbacv1.PolicyRule) *rbac.RuleSet { return rbac.NewRuleSet(append(rules, health)) }
	in := func(namespace string, rules ...rbacv1.PolicyRule) map[string]*rbac.RuleSet {
		return map[string]*rbac.RuleSet{namespace: rbac.NewRuleSet(rules)}
	}
	signer := in(api.SystemNamespace, append(leader("bootstrapsigner"), fixed(core, "secrets", read))...)
	signer[api.PublicNamespace] = rbac.NewRuleSet([]rbacv1.PolicyRule{
		fixed(core, "configmaps", "create"), named(core, "configmaps", "get list watch update patch", "cluster-info"),
	})
	return &Suite{services: map[string]suiteRules{
		// Service account tokens are bound to these objects. Bootstrap and legacy tokens are
		// secrets.
		"authn-webhook": {cluster: only(fixed(core, "serviceaccounts pods nodes secrets", read))},
		"authz-webhook": {cluster: only(
			fixed(rbacv1.GroupName, "roles rolebindings clusterroles clusterrolebindings", read),
			fixed(core, "pods persistentvolumes", read),
			fixed("storage.k8s.io", "volumeattachments", read),
			fixed("resource.k8s.io", "resourceslices", read),
		)},
		"tokencleaner":    {cluster: only(), namespaces: in(api.SystemNamespace, append(leader("tokencleaner"), fixed(core, "secrets", read+" delete"))...)},
		"bootstrapsigner": {cluster: only(), namespaces: signer},
		"controllers":     {cluster: only(controllerRules()...), namespaces: in(api.SystemNamespace, append(leader("controllers"), named(leases, "leases", "get", "kube-controller-manager"))...)},
		// The console authorizes its users and shows metrics.
		"console": {cluster: only(
			fixed("authentication.k8s.io", "tokenreviews", "create"),
			fixed("authorization.k8s.io", "subjectaccessreviews", "create"),
			rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
		)},
	}}
}

// controllerRules returns the permissions of the controllers service: those that Kubernetes'
// default roles grant to the same controllers.
func controllerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		// The garbage collector and the namespace controller handle objects of every resource.
		fixed(rbacv1.APIGroupAll, rbacv1.ResourceAll, "get list watch patch update delete deletecollection"),
		fixed("", "events", "create patch update"),
		fixed("events.k8s.io", "events", "create patch update"),
		fixed("", "serviceaccounts configmaps", "create"),
		// An aggregated role may grant what the controller itself may not do.
		fixed(rbacv1.GroupName, "clusterroles", "escalate"),
		// Discovery finds the resources.
		{NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*"}, Verbs: []string{"get"}},
	}
}

func fixed(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
}

func named(group, resources, verbs string, names ...string) rbacv1.PolicyRule {
	r := fixed(group, resources, verbs)
	r.ResourceNames = names
	return r
}

// Authorize implements Authorizer.
func (s *Suite) Authorize(_ context.Context, a *Attributes) (Decision, string, error) {
	if a.User == nil || !a.User.InGroup(api.GroupSuite) {
		return NoOpinion, "", nil
	}
	name, ok := strings.CutPrefix(a.User.Name, api.UserSuitePrefix)
	if !ok {
		return NoOpinion, "", nil
	}
	rules, ok := s.services[name]
	if !ok {
		return NoOpinion, "", nil
	}
	if rules.cluster.Allows(a) {
		return Allow, "", nil
	}
	if there := rules.namespaces[a.Namespace]; a.Resource && there != nil && there.Allows(a) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

var _ authorizer.Authorizer = (*Suite)(nil)
