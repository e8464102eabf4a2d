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
		{name: "delete", existing: storedConfigMap(), write: deleteWith(metav1.DeleteOptions{}), wantStored: "gone", wantSwaps: 1},
		{name: "delete missing object", write: deleteWith(metav1.DeleteOptions{}), wantCode: 404, wantStored: "gone", wantReads: 1},
		{
			name:       "delete object with a finalizer",
			existing:   withFinalizers(storedConfigMap(), "a/b"),
			write:      deleteWith(metav1.DeleteOptions{}),
			wantStored: "marked a/b",
			wantSwaps:  1,
		},
		{
			name:       "delete terminating object",
			existing:   markDeleted(withFinalizers(storedConfigMap(), "a/b")),
			write:      deleteWith(metav1.DeleteOptions{}),
			wantStored: "marked a/b",
			wantReads:  1,
		},
		{
			name:       "delete in the background an object in foreground deletion",
			existing:   markDeleted(withFinalizers(storedConfigMap(), metav1.FinalizerDeleteDependents)),
			write:      deleteWith(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}),
			wantStored: "gone",
			wantSwaps:  1,
		},
		{
			name:       "delete in the foreground",
			existing:   storedConfigMap(),
			write:      deleteWith(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}),
			wantStored: "marked foregroundDeletion",
			wantSwaps:  1,
		},
		{
			name:       "delete and orphan dependents",
			existing:   storedConfigMap(),
			write:      deleteWith(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}),
			wantStored: "marked orphan",
			wantSwaps:  1,
		},
		{
			name:       "delete keeps the order of finalizers",
			existing:   withFinalizers(storedConfigMap(), metav1.FinalizerOrphanDependents, "a/b"),
			write:      deleteWith(metav1.DeleteOptions{}),
			wantStored: "marked orphan a/b",
			wantSwaps:  1,
		},
		{
			name:       "delete an object with both finalizers of the garbage collector",
			existing:   withFinalizers(storedConfigMap(), metav1.FinalizerDeleteDependents, "a/b", metav1.FinalizerOrphanDependents),
			write:      deleteWith(metav1.DeleteOptions{}),
			wantStored: "marked a/b foregroundDeletion",
			wantSwaps:  1,
		},
		{
			name:       "delete with matching preconditions",
			existing:   storedConfigMap(),
			write:      deleteWith(precondition("uid", "2")),
			wantStored: "gone",
			wantSwaps:  1,
		},
		{
			name:        "delete another object",
			existing:    storedConfigMap(),
			write:       deleteWith(precondition("other", "")),
			wantCode:    409,
			wantMessage: "the UID in the precondition (other)",
			wantStored:  "",
			wantReads:   1,
		},
		{
			name:        "delete another version",
			existing:    storedConfigMap(),
			write:       deleteWith(precondition("", "1")),
			wantCode:    409,
			wantMessage: "the ResourceVersion in the precondition (1)",
			wantStored:  "",
			wantReads:   1,
		},
		{
			name:       "delete a version that the cache has not seen",
			existing:   storedConfigMap(),
			uncached:   storedConfigMap("a", "1"),
			write:      deleteWith(precondition("", "3")),
			wantStored: "gone",
			wantSwaps:  1,
			wantReads:  1,
		},
		{
			name:     "delete while another client replaces the object",
			existing: storedConfigMap(),
			write:    deleteWith(precondition("uid", "")),
			beforeSwap: beforeFirstSwap(func(f *fixture, key string) {
				deleteDirectly(f, key)
				overwriteWith(withUID(storedConfigMap("a", "2"), "second"))(f, key)
			}),
			wantCode:   409,
			wantStored: "a=2",
			wantSwaps:  1,
		},
		{
			name:       "delete while another client adds a finalizer",
			existing:   storedConfigMap(),
			write:      deleteWith(metav1.DeleteOptions{}),
			beforeSwap: beforeFirstSwap(overwriteWith(withFinalizers(storedConfigMap(), "a/b"))),
			wantStored: "marked a/b",
			wantSwaps:  2,
		},
		{
			name:       "delete a version while another client writes",
			existing:   storedConfigMap(),
			write:      deleteWith(precondition("", "2")),
			beforeSwap: beforeFirstSwap(overwriteWith(storedConfigMap("a", "1"))),
			wantCode:   409,
			wantStored: "a=1",
			wantSwaps:  1,
		},
		{
			name:       "delete while another client deletes",
			existing:   storedConfigMap(),
			write:      deleteWith(metav1.DeleteOptions{}),
			beforeSwap: beforeFirstSwap(deleteDirectly),
			wantCode:   404,
			wantStored: "gone",
			wantSwaps:  1,
		},
		{
			name:       "delete in a dry run",
			dryRun:     true,
			existing:   storedConfigMap("a", "0"),
			write:      deleteWith(metav1.DeleteOptions{}),
			wantStored: "a=0",
			wantReads:  1,
		},
		{
			name:       "delete rejected by admission",
			existing:   storedConfigMap("a", "0"),
			setup:      rejectAll,
			write:      deleteWith(metav1.DeleteOptions{}),
			wantCode:   403,
			wantStored: "a=0",
			wantReads:  1,
		},
		{
			name:       "delete without response, applied",
			existing:   storedConfigMap("a", "0"),
			write:      deleteWith(metav1.DeleteOptions{}),
			beforeSwap: failAfterApplying(unavailable),
			wantCode:   500,
			wantStored: "gone",
			wantSwaps:  1,
		},
		{
			name:       "delete without response, not applied",
			existing:   storedConfigMap("a", "0"),
			write:      deleteWith(metav1.DeleteOptions{}),
			beforeSwap: failWithoutApplying(unavailable),
			wantCode:   500,
			wantStored: "a=0",
			wantSwaps:  1,
		},
	}
}
