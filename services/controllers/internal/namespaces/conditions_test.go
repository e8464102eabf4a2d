package namespaces

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/controllers/internal/resources"
)

// TestConditionsReportProgressOfDeletion checks the conditions and their transition times, and that an equal report changes
// nothing.
func TestConditionsReportProgressOfDeletion(t *testing.T) {
	var namespaceStatus corev1.NamespaceStatus
	first, second := metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	incomplete := &progress{
		discoveryErr: &resources.StaleError{Versions: []schema.GroupVersion{{Group: "x", Version: "v1"}}},
		failures:     []error{errors.New("b"), errors.New("a")},
		remaining: map[schema.GroupVersionResource]int{
			{Version: "v1", Resource: "pods"}:                       2,
			{Group: "apps", Version: "v1", Resource: "deployments"}: 1,
		},
		finalizers: map[string]int{"f": 1},
	}
	if !incomplete.setConditions(&namespaceStatus, first) {
		t.Error("setConditions() of the first report = false, want a change")
	}
	if incomplete.setConditions(&namespaceStatus, second) {
		t.Error("setConditions() of the same report again = true, want no change")
	}
	want := []corev1.NamespaceCondition{
		{
			Type: "NamespaceDeletionDiscoveryFailure", Status: "True", Reason: "DiscoveryFailed",
			Message: "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: x/v1: stale GroupVersion discovery: x/v1",
		},
		{
			Type: "NamespaceDeletionGroupVersionParsingFailure", Status: "False", Reason: "ParsedGroupVersions",
			Message: "All legacy kube types successfully parsed",
		},
		{
			Type: "NamespaceDeletionContentFailure", Status: "True", Reason: "ContentDeletionFailed",
			Message: "Failed to delete all resource types, 2 remaining: a, b",
		},
		{
			Type: "NamespaceContentRemaining", Status: "True", Reason: "SomeResourcesRemain",
			Message: "Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances",
		},
		{
			Type: "NamespaceFinalizersRemaining", Status: "True", Reason: "SomeFinalizersRemain",
			Message: "Some content in the namespace has finalizers remaining: f in 1 resource instances",
		},
	}
	checkConditions(t, namespaceStatus, want, first, first)
	if !(&progress{}).setConditions(&namespaceStatus, second) {
		t.Error("setConditions() after complete deletion = false, want a change")
	}
	want = []corev1.NamespaceCondition{
		{
			Type:    "NamespaceDeletionDiscoveryFailure",
			Status:  "False",
			Reason:  "ResourcesDiscovered",
			Message: "All resources successfully discovered",
		},
		want[1],
		{
			Type: "NamespaceDeletionContentFailure", Status: "False", Reason: "ContentDeleted",
			Message: "All content successfully deleted, may be waiting on finalization",
		},
		{
			Type:    "NamespaceContentRemaining",
			Status:  "False",
			Reason:  "ContentRemoved",
			Message: "All content successfully removed",
		},
		{
			Type: "NamespaceFinalizersRemaining", Status: "False", Reason: "ContentHasNoFinalizers",
			Message: "All content-preserving finalizers finished",
		},
	}
	checkConditions(t, namespaceStatus, want, second, first)
}

// checkConditions expects the time kept for the condition that never changes.
func checkConditions(t *testing.T, status corev1.NamespaceStatus, want []corev1.NamespaceCondition, changed, kept metav1.Time) {
	t.Helper()
	if len(status.Conditions) != len(want) {
		t.Fatalf("got conditions %+v, want %d", status.Conditions, len(want))
	}
	for i, condition := range status.Conditions {
		at := changed
		if i == 1 {
			at = kept
		}
		if !condition.LastTransitionTime.Equal(&at) {
			t.Errorf("%s: got transition time %v, want %v", condition.Type, condition.LastTransitionTime, at)
		}
		condition.LastTransitionTime = metav1.Time{}
		want[i].LastTransitionTime = metav1.Time{}
		if condition != want[i] {
			t.Errorf("condition %+v\nwant %+v", condition, want[i])
		}
	}
}
