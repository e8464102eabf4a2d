package writes_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/storage"
)

// deleteCases returns the cases of deletions.
func deleteCases() []writeCase {
	unavailable := fmt.Errorf("no response: %w", storage.ErrUnavailable)
	return []writeCase{
		{name: "delete", existing: storedConfigMap(), do: deleteOp(metav1.DeleteOptions{}), want: "gone", swaps: 1},
		{name: "delete missing object", do: deleteOp(metav1.DeleteOptions{}), code: 404, want: "gone", reads: 1},
		{
			name:     "delete object with a finalizer",
			existing: withFinalizers(storedConfigMap(), "a/b"),
			do:       deleteOp(metav1.DeleteOptions{}),
			want:     "marked a/b",
			swaps:    1,
		},
		{
			name:     "delete terminating object",
			existing: markDeleted(withFinalizers(storedConfigMap(), "a/b")),
			do:       deleteOp(metav1.DeleteOptions{}),
			want:     "marked a/b",
			reads:    1,
		},
		{
			name:     "delete in the background an object in foreground deletion",
			existing: markDeleted(withFinalizers(storedConfigMap(), metav1.FinalizerDeleteDependents)),
			do:       deleteOp(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}),
			want:     "gone",
			swaps:    1,
		},
		{
			name:     "delete in the foreground",
			existing: storedConfigMap(),
			do:       deleteOp(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}),
			want:     "marked foregroundDeletion",
			swaps:    1,
		},
		{
			name:     "delete and orphan dependents",
			existing: storedConfigMap(),
			do:       deleteOp(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}),
			want:     "marked orphan",
			swaps:    1,
		},
		{
			name:     "delete keeps the order of finalizers",
			existing: withFinalizers(storedConfigMap(), metav1.FinalizerOrphanDependents, "a/b"),
			do:       deleteOp(metav1.DeleteOptions{}),
			want:     "marked orphan a/b",
			swaps:    1,
		},
		{
			name:     "delete an object with both finalizers of the garbage collector",
			existing: withFinalizers(storedConfigMap(), metav1.FinalizerDeleteDependents, "a/b", metav1.FinalizerOrphanDependents),
			do:       deleteOp(metav1.DeleteOptions{}),
			want:     "marked a/b foregroundDeletion",
			swaps:    1,
		},
		{name: "delete with matching preconditions", existing: storedConfigMap(), do: deleteOp(precondition("uid", "2")), want: "gone", swaps: 1},
		{
			name:     "delete another object",
			existing: storedConfigMap(),
			do:       deleteOp(precondition("other", "")),
			code:     409,
			message:  "the UID in the precondition (other)",
			want:     "",
			reads:    1,
		},
		{
			name:     "delete another version",
			existing: storedConfigMap(),
			do:       deleteOp(precondition("", "1")),
			code:     409,
			message:  "the ResourceVersion in the precondition (1)",
			want:     "",
			reads:    1,
		},
		{
			name:     "delete a version that the cache has not seen",
			existing: storedConfigMap(),
			since:    storedConfigMap("a", "1"),
			do:       deleteOp(precondition("", "3")),
			want:     "gone",
			swaps:    1,
			reads:    1,
		},
		{
			name:     "delete while another client replaces the object",
			existing: storedConfigMap(),
			do:       deleteOp(precondition("uid", "")),
			before: failOnce(func(w *fixture, key string) {
				deleteObject(w, key)
				overwriteFirst(withUID(storedConfigMap("a", "2"), "second"))(w, key)
			}),
			code:  409,
			want:  "a=2",
			swaps: 1,
		},
		{
			name:     "delete while another client adds a finalizer",
			existing: storedConfigMap(),
			do:       deleteOp(metav1.DeleteOptions{}),
			before:   failOnce(overwriteFirst(withFinalizers(storedConfigMap(), "a/b"))),
			want:     "marked a/b",
			swaps:    2,
		},
		{
			name:     "delete a version while another client writes",
			existing: storedConfigMap(),
			do:       deleteOp(precondition("", "2")),
			before:   failOnce(overwriteFirst(storedConfigMap("a", "1"))),
			code:     409,
			want:     "a=1",
			swaps:    1,
		},
		{
			name:     "delete while another client deletes",
			existing: storedConfigMap(),
			do:       deleteOp(metav1.DeleteOptions{}),
			before:   failOnce(deleteObject),
			code:     404,
			want:     "gone",
			swaps:    1,
		},
		{name: "delete in a dry run", dryRun: true, existing: storedConfigMap("a", "0"), do: deleteOp(metav1.DeleteOptions{}), want: "a=0", reads: 1},
		{
			name:     "delete rejected by admission",
			existing: storedConfigMap("a", "0"),
			prepare:  rejectAll,
			do:       deleteOp(metav1.DeleteOptions{}),
			code:     403,
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "delete without response, applied",
			existing: storedConfigMap("a", "0"),
			do:       deleteOp(metav1.DeleteOptions{}),
			before:   failWith(unavailable, true),
			code:     500,
			want:     "gone",
			swaps:    1,
		},
		{
			name:     "delete without response, not applied",
			existing: storedConfigMap("a", "0"),
			do:       deleteOp(metav1.DeleteOptions{}),
			before:   failWith(unavailable, false),
			code:     500,
			want:     "a=0",
			swaps:    1,
		},
	}
}
