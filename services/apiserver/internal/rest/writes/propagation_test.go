package writes_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestPropagationOfNamespaces checks the finalizers of a namespace after a deletion. Only the first
// deletion changes them.
func TestPropagationOfNamespaces(t *testing.T) {
	b := newBase(t)
	const orphan, foreground = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	for _, c := range []struct {
		name        string
		had         []string
		terminating bool
		options     metav1.DeleteOptions
		want        []string
	}{
		{name: "no policy"},
		{name: "no policy, both finalizers", had: []string{orphan, "a/b", foreground}, want: []string{orphan, "a/b", foreground}},
		{name: "orphan", options: metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}, want: []string{orphan}},
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
		w := b.fixture(t)
		namespace := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Finalizers: c.had},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		}
		if c.terminating {
			namespace.DeletionTimestamp = &metav1.Time{Time: now.Truncate(time.Second)}
		}
		w.put(w.kind("namespaces"), namespace)
		w.syncCache()
		r := w.request("namespaces", "n")
		r.Namespace = ""
		r.Options = &c.options
		res, err := w.writer.Delete(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := res.Object.GetFinalizers(); !slices.Equal(got, c.want) {
			t.Errorf("%s: Delete left finalizers %q, want %q", c.name, got, c.want)
		}
	}
}
