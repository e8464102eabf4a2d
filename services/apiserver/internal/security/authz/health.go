package authz

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/libs/rbac"
)

// Health allows GET requests for the health endpoints while roles and bindings are not
// loaded, and has no opinion afterwards. Probes of a server that cannot reach etcd receive
// the failed checks instead of 403. The default ClusterRole system:public-info-viewer
// grants the same permission once it is loaded.
type Health struct {
	synced func() bool
	rules  *rbac.RuleSet
}

// NewHealth returns an authorizer that depends on whether the policy is loaded.
func NewHealth(synced func() bool) *Health {
	return &Health{
		synced: synced,
		rules: rbac.NewRuleSet([]rbacv1.PolicyRule{{
			NonResourceURLs: []string{"/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*"},
			Verbs:           []string{"get"},
		}}),
	}
}

// Authorize implements Authorizer.
func (h *Health) Authorize(_ context.Context, attrs *Attributes) (Decision, string, error) {
	if attrs.Resource || h.synced() || !h.rules.Allows(attrs) {
		return NoOpinion, "", nil
	}
	return Allow, "", nil
}
