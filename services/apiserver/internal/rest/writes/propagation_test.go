package writes_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/registry"
)

// TestOnlyFirstDeletionChangesNamespaceFinalizers checks the finalizers of a namespace after a
// deletion. Only the first deletion changes them.
func TestOnlyFirstDeletionChangesNamespaceFinalizers(t *testing.T) {
	base := newBase(t)
	const orphan, foreground = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	for _, test := range []struct {
		name        string
		had         []string
		terminating bool
		options     metav1.DeleteOptions
		want        []string
	}{
		{name: "no policy"},
		{name: "no policy, both finalizers", had: []string{orphan, "a/b", foreground}, want: []string{orphan, "a/b", foreground}},
		{
			name:    "orphan",
			options: metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)},
			want:    []string{orphan},
		},
		{
			name:    "background",
			had:     []string{orphan, "a/b", foreground},
			options: metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)},
			want:    []string{"a/b"},
		},
		{name: "do not orphan", options: metav1.DeleteOptions{OrphanDependents: ptr.To(false)}, want: []string{foreground}}, //nolint:staticcheck // clients still send it
		{
			name:        "orphan while terminating",
			terminating: true,
			options:     metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)},
		},
	} {
		fixture := base.fixture(t)
		namespace := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Finalizers: test.had},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		}
		if test.terminating {
			namespace.DeletionTimestamp = &metav1.Time{Time: now.Truncate(time.Second)}
		}
		fixture.storeDirectly(fixture.kind("namespaces"), namespace)
		fixture.syncCache()
		r := fixture.newRequest("namespaces", "n")
		r.Namespace = ""
		r.Options = &test.options
		res, err := fixture.writer.Delete(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := res.Object.GetFinalizers(); !slices.Equal(got, test.want) {
			t.Errorf("%s: Delete left finalizers %q, want %q", test.name, got, test.want)
		}
	}
}

// TestEventsIgnorePropagation checks that events own no objects, so no policy keeps them.
func TestEventsIgnorePropagation(t *testing.T) {
	b := newBase(t)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground} {
		fixture := b.fixture(t)
		fixture.storeDirectly(
			fixture.kind("events"),
			&corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n", UID: "u", Finalizers: []string{metav1.FinalizerOrphanDependents}},
			},
		)
		fixture.syncCache()
		r := fixture.newRequest("events", "n")
		r.Options = &metav1.DeleteOptions{PropagationPolicy: &policy}
		if _, err := fixture.writer.Delete(t.Context(), r); err != nil {
			t.Fatalf("%s: %v", policy, err)
		}
		if left := fixture.storedObject(fixture.kind("events"), "n"); left != nil {
			t.Errorf("%s: Delete left an event with finalizers %q, want none", policy, left.GetFinalizers())
		}
	}
}

// TestAdmissionSeesEffectiveDeleteOptions checks the options of a deletion that admission plugins
// see.
func TestAdmissionSeesEffectiveDeleteOptions(t *testing.T) {
	base := newBase(t)
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "n", UID: "u"}
	pod := func(node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To(int64(20))}}
	}
	for _, test := range []struct {
		name, resource string
		object         registry.Object
		requestedGrace *int64
		collection     bool
		grace          *int64
		uid            *types.UID
	}{
		{name: "scheduled pod", resource: "pods", object: pod("node"), grace: ptr.To(int64(20))},
		{
			name:           "scheduled pod, shorter",
			resource:       "pods",
			object:         pod("node"),
			requestedGrace: ptr.To(int64(5)),
			grace:          ptr.To(int64(5)),
		},
		{
			name:           "pod that is not scheduled",
			resource:       "pods",
			object:         pod(""),
			requestedGrace: ptr.To(int64(5)),
			grace:          ptr.To(int64(0)),
		},
		{name: "pod of a collection", resource: "pods", object: pod("node"), collection: true},
		{name: "config map", resource: "configmaps", object: &corev1.ConfigMap{ObjectMeta: meta}},
		{
			name:           "negative period",
			resource:       "configmaps",
			object:         &corev1.ConfigMap{ObjectMeta: meta},
			requestedGrace: ptr.To(int64(-5)),
			grace:          ptr.To(int64(1)),
		},
		{
			name:     "namespace",
			resource: "namespaces",
			object:   &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}},
			uid:      ptr.To(types.UID("u")),
		},
		{
			name:           "namespace, negative period",
			resource:       "namespaces",
			object:         &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}},
			requestedGrace: ptr.To(int64(-1)),
			grace:          ptr.To(int64(-1)),
			uid:            ptr.To(types.UID("u")),
		},
	} {
		fixture := base.fixture(t)
		fixture.storeDirectly(fixture.kind(test.resource), test.object)
		fixture.syncCache()
		r := fixture.newRequest(test.resource, "n")
		r.Namespace, r.Collection = test.object.GetNamespace(), test.collection
		r.Options = &metav1.DeleteOptions{GracePeriodSeconds: test.requestedGrace}
		if _, err := fixture.writer.Delete(t.Context(), r); err != nil || len(fixture.validated) == 0 {
			t.Fatalf("%s: got error %v, %d admission requests, want none and at least one", test.name, err, len(fixture.validated))
		}
		got := fixture.validated[0].Options.(*metav1.DeleteOptions)
		var uid *types.UID
		if got.Preconditions != nil {
			uid = got.Preconditions.UID
		}
		if !ptr.Equal(got.GracePeriodSeconds, test.grace) || !ptr.Equal(uid, test.uid) {
			t.Errorf("%s: admission saw options %v, want grace period %v and uid %v", test.name, got, test.grace, test.uid)
		}
	}
}
