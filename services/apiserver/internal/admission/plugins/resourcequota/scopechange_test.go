package resourcequota_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestUpdateThatMovesPodIntoScopeIsCharged checks that a pod that gets or loses
// its deadline is charged to the quotas of its new scope.
func TestUpdateThatMovesPodIntoScopeIsCharged(t *testing.T) {
	var seconds int64 = 100
	running := pod(nil, "cpu=500m", "")
	bounded := pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }, "cpu=500m", "")
	inScope := func(scope corev1.ResourceQuotaScope) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}
	}
	const terminating, notTerminating = corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating
	for name, c := range map[string]struct {
		scope    corev1.ResourceQuotaScope
		new, old *corev1.Pod
		hard     string
		dryRun   bool
		want     string // message of the rejection
		used     string // after the request
	}{
		"into Terminating":             {terminating, bounded, running, "pods=1,requests.cpu=1", false, "", "pods=1,requests.cpu=500m"},
		"into NotTerminating":          {notTerminating, running, bounded, "pods=1,requests.cpu=1", false, "", "pods=1,requests.cpu=500m"},
		"out of the scope":             {terminating, running, bounded, "pods=0,requests.cpu=0", false, "", "pods=0,requests.cpu=0"},
		"dry run":                      {terminating, bounded, running, "pods=1,requests.cpu=1", true, "", "pods=0,requests.cpu=0"},
		"stays in the scope":           {terminating, bounded, bounded, "pods=0,requests.cpu=0", false, "", "pods=0,requests.cpu=0"},
		"more than the count allows":   {terminating, bounded, running, "pods=0,requests.cpu=1", false, `pods "o" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`, "pods=0,requests.cpu=0"},
		"more cpu than allowed":        {terminating, bounded, running, "pods=1,requests.cpu=100m", false, `pods "o" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=0, limited: requests.cpu=100m`, "pods=0,requests.cpu=0"},
		"dry run of more than allowed": {terminating, bounded, running, "pods=0,requests.cpu=1", true, `pods "o" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`, "pods=0,requests.cpu=0"},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore(quota("q", c.hard, "pods=0,requests.cpu=0", inScope(c.scope)))
			r := update("pods", "", c.new, c.old)
			r.DryRun = c.dryRun
			if got := claimed(t, plugin(t, quotas, ""), r); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := quotas.used(t, "q"); got != show(amountsOf(c.used)) {
				t.Errorf("used %s, want %s", got, c.used)
			}
		})
	}
}
