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

// suiteRules holds the permissions of a service.
type suiteRules struct {
	cluster    *rbac.RuleSet            // in the whole cluster
	namespaces map[string]*rbac.RuleSet // in one namespace, by namespace
}

// API groups and verbs of the rules.
const (
	coreGroup         = ""
	coordinationGroup = "coordination.k8s.io"
	eventsGroup       = "events.k8s.io"

	readVerbs = "get list watch"
)

// NewSuite returns an authorizer with the rules of all services of the suite.
func NewSuite() *Suite {
	tokenCleanerRules := append(leaderElectionRules("tokencleaner"), ruleFor(coreGroup, "secrets", readVerbs+" delete"))
	signerRules := append(leaderElectionRules("bootstrapsigner"), ruleFor(coreGroup, "secrets", readVerbs))
	signerPublicRules := []rbacv1.PolicyRule{
		ruleFor(coreGroup, "configmaps", "create"),
		ruleForNames(coreGroup, "configmaps", readVerbs+" update patch", "cluster-info"),
	}
	controllersSystemRules := append(leaderElectionRules("controllers"),
		ruleForNames(coordinationGroup, "leases", "get", "kube-controller-manager"))
	return &Suite{services: map[string]suiteRules{
		// Probes of the API server must not depend on an authorization webhook, because the webhook
		// needs a ready API server.
		"apiserver": {cluster: clusterRules()},
		// Service account tokens are bound to these objects. Bootstrap and legacy tokens are
		// secrets.
		"authn-webhook": {cluster: clusterRules(ruleFor(coreGroup, "serviceaccounts pods nodes secrets", readVerbs))},
		"authz-webhook": {cluster: clusterRules(
			ruleFor(rbacv1.GroupName, "roles rolebindings clusterroles clusterrolebindings", readVerbs),
			ruleFor(coreGroup, "pods persistentvolumes", readVerbs),
			ruleFor("storage.k8s.io", "volumeattachments", readVerbs),
			ruleFor("resource.k8s.io", "resourceslices", readVerbs),
		)},
		"tokencleaner": {
			cluster:    clusterRules(),
			namespaces: map[string]*rbac.RuleSet{api.SystemNamespace: rbac.NewRuleSet(tokenCleanerRules)},
		},
		"bootstrapsigner": {
			cluster: clusterRules(),
			namespaces: map[string]*rbac.RuleSet{
				api.SystemNamespace: rbac.NewRuleSet(signerRules),
				api.PublicNamespace: rbac.NewRuleSet(signerPublicRules),
			},
		},
		"controllers": {
			cluster:    clusterRules(controllerRules()...),
			namespaces: map[string]*rbac.RuleSet{api.SystemNamespace: rbac.NewRuleSet(controllersSystemRules)},
		},
		// The console authorizes its users and shows metrics.
		"console": {cluster: clusterRules(
			ruleFor("authentication.k8s.io", "tokenreviews", "create"),
			ruleFor("authorization.k8s.io", "subjectaccessreviews", "create"),
			rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
		)},
	}}
}

// clusterRules returns the given rules for the whole cluster, and the permission to read the health
// and the version of the API server, which every service has.
func clusterRules(rules ...rbacv1.PolicyRule) *rbac.RuleSet {
	health := rbacv1.PolicyRule{
		NonResourceURLs: []string{"/healthz", "/livez", "/readyz", "/version"},
		Verbs:           []string{"get"},
	}
	return rbac.NewRuleSet(append(rules, health))
}

// leaderElectionRules returns the permissions that a replica needs to compete for the lease of its
// service, and to report the result as events.
func leaderElectionRules(lease string) []rbacv1.PolicyRule {
	return append(eventRules(),
		ruleFor(coordinationGroup, "leases", "create"),
		ruleForNames(coordinationGroup, "leases", "get update patch", lease))
}

// eventRules returns the permissions to report events through both APIs.
func eventRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		ruleFor(coreGroup, "events", "create patch update"),
		ruleFor(eventsGroup, "events", "create patch update"),
	}
}

// controllerRules returns the permissions of the service controllers in the whole cluster. They
// equal the permissions that the default roles of Kubernetes grant to the same controllers.
func controllerRules() []rbacv1.PolicyRule {
	return append(eventRules(),
		// The garbage collector and the namespace controller handle objects of every resource.
		ruleFor(rbacv1.APIGroupAll, rbacv1.ResourceAll, "get list watch patch update delete deletecollection"),
		ruleFor(coreGroup, "serviceaccounts configmaps", "create"),
		// An aggregated role may grant what the controller itself may not do.
		ruleFor(rbacv1.GroupName, "clusterroles", "escalate"),
		// The controllers find the resources through discovery.
		rbacv1.PolicyRule{NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*"}, Verbs: []string{"get"}},
	)
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
