package noderestriction

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSingularReplacesResourceInNotFound checks that singular turns "pods" into "pod" in a NotFound
// error. The wanted messages are those of kube-apiserver.
func TestSingularReplacesResourceInNotFound(t *testing.T) {
	t.Parallel()
	for want, resource := range map[string]schema.GroupResource{
		`csidriver.storage.k8s.io "x" not found`: storagev1.Resource("csidrivers"),
		`persistentvolumeclaim "x" not found`:    corev1.Resource("persistentvolumeclaims"),
		`persistentvolume "x" not found`:         corev1.Resource("persistentvolumes"),
		`pod "x" not found`:                      corev1.Resource("pods"),
		`node "x" not found`:                     corev1.Resource("nodes"),
	} {
		_, err := singular(0, apierrors.NewNotFound(resource, "x"))
		if err.Error() != want || !apierrors.IsNotFound(err) {
			t.Errorf("singular(NotFound of %s) = error %q, want NotFound with message %q", resource, err, want)
		}
	}
}
