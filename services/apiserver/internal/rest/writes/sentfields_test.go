package writes_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSubresourcesOfPodsOwnSentFields: a manager that sends other changes to a subresource owns their fields
// there, although the subresource drops the changes.
func TestSubresourcesOfPodsOwnSentFields(t *testing.T) {
	b := newBase(t)
	pod := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}
	for _, sub := range []string{"resize", "ephemeralcontainers"} {
		w := b.fixture(t)
		r := w.request("pods", "")
		r.Object, r.Options = pod(), &metav1.CreateOptions{}
		if _, err := w.writer.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.syncCache()
		wanted := pod()
		wanted.Labels = map[string]string{"a": "b"}
		wanted.Spec.Containers[0].Image = "j"
		r = w.request("pods", "n")
		r.Sub = r.Resource.Subresource(sub)
		r.Object, r.Options = wanted, &metav1.UpdateOptions{}
		if _, err := w.writer.Update(t.Context(), r); err != nil {
			t.Fatalf("%s: %v", sub, err)
		}
		stored := w.stored(w.kind("pods"), "n").(*corev1.Pod)
		if len(stored.Labels) > 0 || stored.Spec.Containers[0].Image != "i" {
			t.Errorf("%s: Update stored labels %v and image %s, want none and i", sub, stored.Labels, stored.Spec.Containers[0].Image)
		}
		owns := func(m metav1.ManagedFieldsEntry) bool {
			return m.Subresource == sub && strings.Contains(string(m.FieldsV1.Raw), `"f:a"`) && strings.Contains(string(m.FieldsV1.Raw), `"f:image"`)
		}
		if !slices.ContainsFunc(stored.ManagedFields, owns) {
			t.Errorf("%s: got managedFields %v, want an entry with the label and the image", sub, stored.ManagedFields)
		}
	}
}
