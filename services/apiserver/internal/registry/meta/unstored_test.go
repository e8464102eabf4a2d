package meta_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/registry/meta"
)

// TestPrepareUnstoredClearsServerFields checks that an object that is not stored keeps no metadata that only the
// server sets, and gets the namespace of the path.
func TestPrepareUnstoredClearsServerFields(t *testing.T) {
	for _, test := range []struct {
		name, sent, path, want string
		rejected               bool
	}{
		{name: "no namespace", path: "a", want: "a"},
		{name: "same namespace", sent: "a", path: "a", want: "a"},
		{name: "another namespace", sent: "b", path: "a", rejected: true},
		{name: "namespace of a cluster-scoped kind", sent: "b"},
	} {
		review := &authorizationv1.SubjectAccessReview{ObjectMeta: metav1.ObjectMeta{
			Name: "n", Namespace: test.sent, UID: "u", SelfLink: "/x", CreationTimestamp: metav1.Unix(1, 0),
			DeletionTimestamp: ptr.To(metav1.Unix(1, 0)), DeletionGracePeriodSeconds: ptr.To(int64(1)),
		}}
		err := meta.PrepareUnstored(review, test.path)
		if test.rejected {
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%s: PrepareUnstored = %v, want BadRequest", test.name, err)
			}
			continue
		}
		want := metav1.ObjectMeta{Name: "n", Namespace: test.want}
		if err != nil || review.ObjectMeta.String() != want.String() {
			t.Errorf("%s: PrepareUnstored = %v with %v, want %v", test.name, err, review.ObjectMeta, want)
		}
	}
}
