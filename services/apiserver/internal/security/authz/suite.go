package authz

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
)

// Suite is an authorizer that grants the suite's own services the permissions that they need to
// start, before any role exists. It has no opinion on all other requests.
type Suite struct{ services map[string]suiteRules }

// suiteRules holds the permissions of a service for the whole cluster and by namespace.
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
			ruleFor(leases, "leases", "create"),
			ruleForNames(leases, "leases", "get update patch", name),
			ruleFor(core, "events", "create patch update"),
			ruleFor("events.k8s.io", "events", "create patch update"),
		}
	}
	health := rbacv1.PolicyRule{NonResourceURLs: []string{"/healthz", "/livez", "/readyz", "/version"}, Verbs: []string{"get"}}
	clusterRules := func(rules ...rbacv1.PolicyRule) *rbac.RuleSet { return rbac.NewRuleSet(append(rules, health)) }
	inNamespace := func(namespace string, rules ...rbacv1.PolicyRule) map[string]*rbac.RuleSet {
		return map[string]*rbac.RuleSet{namespace: rbac.NewRuleSet(rules)}
	}
	signer := inNamespace(api.SystemNamespace, append(leader("bootstrapsigner"), ruleFor(core, "secrets", read))...)
	signer[api.PublicNamespace] = rbac.NewRuleSet([]rbacv1.PolicyRule{
		ruleFor(core, "configmaps", "create"), ruleForNames(core, "configmaps", "get list watch update patch", "cluster-info"),
	})
	return &Suite{services: map[string]suiteRules{
		// Probes must not depend on an authorization webhook: it needs a ready API server.
		"apiserver": {cluster: clusterRules()},
		// Service account tokens are bound to these objects. Bootstrap and legacy tokens are
		// secrets.
		"authn-webhook": {cluster: clusterRules(ruleFor(core, "serviceaccounts pods nodes secrets", read))},
		"authz-webhook": {cluster: clusterRules(
			ruleFor(rbacv1.GroupName, "roles rolebindings clusterroles clusterrolebindings", read),
			ruleFor(core, "pods persistentvolumes", read),
			ruleFor("storage.k8s.io", "volumeattachments", read),
			ruleFor("resource.k8s.io", "resourceslices", read),
		)},
		"tokencleaner":    {cluster: clusterRules(), namespaces: inNamespace(api.SystemNamespace, append(leader("tokencleaner"), ruleFor(core, "secrets", read+" delete"))...)},
		"bootstrapsigner": {cluster: clusterRules(), namespaces: signer},
		"controllers":     {cluster: clusterRules(controllerRules()...), namespaces: inNamespace(api.SystemNamespace, append(leader("controllers"), ruleForNames(leases, "leases", "get", "kube-controller-manager"))...)},
		// The console authorizes its users and shows metrics.
		"console": {cluster: clusterRules(
			ruleFor("authentication.k8s.io", "tokenreviews", "create"),
			ruleFor("authorization.k8s.io", "subjectaccessreviews", "create"),
			rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
		)},
	}}
}

// controllerRules returns the permissions of the controllers service: those that Kubernetes'
// default roles grant to the same controllers.
func controllerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		// The garbage collector and the namespace controller handle objects of every resource.
		ruleFor(rbacv1.APIGroupAll, rbacv1.ResourceAll, "get list watch patch update delete deletecollection"),
		ruleFor("", "events", "create patch update"),
		ruleFor("events.k8s.io", "events", "create patch update"),
		ruleFor("", "serviceaccounts configmaps", "create"),
		// An aggregated role may grant what the controller itself may not do.
		ruleFor(rbacv1.GroupName, "clusterroles", "escalate"),
		// Discovery finds the resources.
		{NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*"}, Verbs: []string{"get"}},
	}
}

// ruleFor returns a rule for space-separated resources and verbs.
func ruleFor(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
}

// ruleForNames returns a rule that is limited to objects with the given names.
func ruleForNames(group, resources, verbs string, names ...string) rbacv1.PolicyRule {
	r := ruleFor(group, resources, verbs)
	r.ResourceNames = names
	return r
}

// Authorize implements Authorizer.
func (s *Suite) Authorize(_ context.Context, attrs *Attributes) (Decision, string, error) {
	if attrs.User == nil || !attrs.User.InGroup(api.GroupSuite) {
		return NoOpinion, "", nil
	}
	name, ok := strings.CutPrefix(attrs.User.Name, api.UserSuitePrefix)
	if !ok {
		return NoOpinion, "", nil
	}
	rules, ok := s.services[name]
	if !ok {
		return NoOpinion, "", nil
	}
	if rules.cluster.Allows(attrs) {
		return Allow, "", nil
	}
	if inNamespace := rules.namespaces[attrs.Namespace]; attrs.Resource && inNamespace != nil && inNamespace.Allows(attrs) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

var _ authorizer.Authorizer = (*Suite)(nil)
