package resourcequota_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestUpdateThatMovesPodIntoScopeIsCharged checks that a pod that gets or loses its deadline is
// charged to the quotas of its new scope.
func TestUpdateThatMovesPodIntoScopeIsCharged(t *testing.T) {
	var seconds int64 = 100
	withoutDeadline := pod("cpu=500m", "")
	withDeadline := pod("cpu=500m", "", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds })
	inScope := func(scope corev1.ResourceQuotaScope) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}
	}
	const terminating, notTerminating = corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating
	for name, test := range map[string]struct {
		scope    corev1.ResourceQuotaScope
		new, old *corev1.Pod
		hard     string
		dryRun   bool
		want     string // message of the rejection, or ""
		used     string // after the request
	}{
		"pod gets a deadline, scope Terminating": {
			scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=1,requests.cpu=1",
			used: "pods=1,requests.cpu=500m",
		},
		"pod loses its deadline, scope NotTerminating": {
			scope: notTerminating, new: withoutDeadline, old: withDeadline, hard: "pods=1,requests.cpu=1",
			used: "pods=1,requests.cpu=500m",
		},
		"pod leaves the scope": {
			scope: terminating, new: withoutDeadline, old: withDeadline, hard: "pods=0,requests.cpu=0",
			used: "pods=0,requests.cpu=0",
		},
		"dry run of a move into the scope": {
			scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=1,requests.cpu=1", dryRun: true,
			used: "pods=0,requests.cpu=0",
		},
		"update within the scope": {
			scope: terminating, new: withDeadline, old: withDeadline, hard: "pods=0,requests.cpu=0",
			used: "pods=0,requests.cpu=0",
		},
		"count is exceeded": {
			scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=0,requests.cpu=1",
			want: `pods "o" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`,
			used: "pods=0,requests.cpu=0",
		},
		"CPU is exceeded": {
			scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=1,requests.cpu=100m",
			want: `pods "o" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=0, limited: requests.cpu=100m`,
			used: "pods=0,requests.cpu=0",
		},
		"dry run, count is exceeded": {
			scope: terminating, new: withDeadline, old: withoutDeadline, hard: "pods=0,requests.cpu=1", dryRun: true,
			want: `pods "o" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`,
			used: "pods=0,requests.cpu=0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore(quota("q", test.hard, "pods=0,requests.cpu=0", inScope(test.scope)))
			r := update("pods", "", test.new, test.old)
			r.DryRun = test.dryRun
			if got := charge(t, newPlugin(t, quotas, ""), r); got != test.want {
				t.Errorf("got rejection %q, want %q", got, test.want)
			}
			if got := quotas.used(t, "q"); got != formatAmounts(parseAmounts(test.used)) {
				t.Errorf("got usage %s, want %s", got, test.used)
			}
		})
	}
}
