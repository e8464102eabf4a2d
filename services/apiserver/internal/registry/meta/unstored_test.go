package meta_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/registry/meta"
)

// TestPrepareUnstoredSetsNamespaceAndClearsServerFields checks that an object that is not stored gets
// the namespace of the path and keeps no metadata that only the server sets.
func TestPrepareUnstoredSetsNamespaceAndClearsServerFields(t *testing.T) {
	for _, test := range []struct {
		name, sentNamespace, pathNamespace, want string
		rejected                                 bool
	}{
		{name: "no namespace", pathNamespace: "a", want: "a"},
		{name: "same namespace", sentNamespace: "a", pathNamespace: "a", want: "a"},
		{name: "another namespace", sentNamespace: "b", pathNamespace: "a", rejected: true},
		{name: "namespace of a cluster-scoped kind", sentNamespace: "b"},
	} {
		review := &authorizationv1.SubjectAccessReview{ObjectMeta: metav1.ObjectMeta{
			Name: "n", Namespace: test.sentNamespace, UID: "u", SelfLink: "/x", CreationTimestamp: metav1.Unix(1, 0),
			DeletionTimestamp: ptr.To(metav1.Unix(1, 0)), DeletionGracePeriodSeconds: ptr.To(int64(1)),
		}}
		err := meta.PrepareUnstored(review, test.pathNamespace)
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
