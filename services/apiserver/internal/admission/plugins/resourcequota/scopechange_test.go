package resourcequota_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestUpdateThatMovesPodIntoScopeIsCharged checks that a pod that gets or loses its deadline is
// charged to the quotas of its new scope.
func TestUpdateThatMovesPodIntoScopeIsCharged(t *testing.T) {
	var seconds int64 = 100
	withoutDeadline := pod(nil, "cpu=500m", "")
	withDeadline := pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }, "cpu=500m", "")
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
		"into Terminating":             {scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=1,requests.cpu=1", want: "", used: "pods=1,requests.cpu=500m"},
		"into NotTerminating":          {scope: notTerminating, new: withoutDeadline, old: withDeadline, hard: "pods=1,requests.cpu=1", want: "", used: "pods=1,requests.cpu=500m"},
		"out of the scope":             {scope: terminating, new: withoutDeadline, old: withDeadline, hard: "pods=0,requests.cpu=0", want: "", used: "pods=0,requests.cpu=0"},
		"dry run":                      {scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=1,requests.cpu=1", dryRun: true, want: "", used: "pods=0,requests.cpu=0"},
		"stays in the scope":           {scope: terminating, new: withDeadline, old: withDeadline, hard: "pods=0,requests.cpu=0", want: "", used: "pods=0,requests.cpu=0"},
		"more than the count allows":   {scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=0,requests.cpu=1", want: `pods "o" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`, used: "pods=0,requests.cpu=0"},
		"more cpu than allowed":        {scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=1,requests.cpu=100m", want: `pods "o" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=0, limited: requests.cpu=100m`, used: "pods=0,requests.cpu=0"},
		"dry run of more than allowed": {scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=0,requests.cpu=1", dryRun: true, want: `pods "o" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`, used: "pods=0,requests.cpu=0"},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore(quota("q", c.hard, "pods=0,requests.cpu=0", inScope(c.scope)))
			r := update("pods", "", c.new, c.old)
			r.DryRun = c.dryRun
			if got := rejectionOf(t, plugin(t, quotas, ""), r); got != c.want {
				t.Errorf("got rejection %q, want %q", got, c.want)
			}
			if got := quotas.used(t, "q"); got != show(amountsOf(c.used)) {
				t.Errorf("got usage %s, want %s", got, c.used)
			}
		})
	}
}
