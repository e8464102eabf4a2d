package definition

import (
	"context"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// statusWrite is a change of the status of a definition at a known revision.
type statusWrite struct {
	client     Client
	definition *v1.CustomResourceDefinition
	revision   int64
	now        metav1.Time
}

// patchStatus writes only the status. It returns what sendPatch returns.
func (w *statusWrite) patchStatus(ctx context.Context) (bool, error) {
	return w.sendPatch(ctx, map[string]any{})
}

// sendPatch writes the status and other metadata. It returns false if another
// write was faster or if a precondition does not hold. In the first case, the change will arrive
// through the watch.
func (w *statusWrite) sendPatch(
	ctx context.Context,
	metadata map[string]any,
	preconditions ...storage.Precondition,
) (bool, error) {
	metadata["resourceVersion"] = strconv.FormatInt(w.revision, 10)
	err := w.client.PatchStatus(ctx, w.definition.Name, map[string]any{
		"metadata": metadata,
		"status":   map[string]any{"conditions": w.definition.Status.Conditions, "acceptedNames": namesPatch(&w.definition.Status.AcceptedNames)},
	}, preconditions...)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// recordProgress records the progress of the deletion.
func (w *statusWrite) recordProgress(ctx context.Context, reason, message string) (bool, error) {
	SetCondition(&w.definition.Status, *newCondition(v1.Terminating, true, reason, message), w.now)
	return w.patchStatus(ctx)
}

// recordFailure records an error of the deletion, and returns it.
func (w *statusWrite) recordFailure(ctx context.Context, prefix string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	condition := newCondition(v1.Terminating, true, "InstanceDeletionFailed", prefix+err.Error())
	if changed := SetCondition(&w.definition.Status, *condition, w.now); changed {
		_, _ = w.patchStatus(ctx) // the caller gets the original error
	}
	return err
}

// removeFinalizer removes the finalizer of a definition whose objects are gone.
func (w *statusWrite) removeFinalizer(ctx context.Context, reason, message string, preconditions ...storage.Precondition) error {
	SetCondition(&w.definition.Status, *newCondition(v1.Terminating, false, reason, message), w.now)
	finalizers := slices.DeleteFunc(slices.Clone(w.definition.Finalizers), func(f string) bool {
		return f == v1.CustomResourceCleanupFinalizer
	})
	_, err := w.sendPatch(ctx, map[string]any{"finalizers": finalizers}, preconditions...)
	return err
}

// groupOf returns the group of the resource that a definition with the given name defines.
func groupOf(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return group
}

// namesPatch returns the merge patch that sets the names. nil removes a name.
func namesPatch(names *v1.CustomResourceDefinitionNames) map[string]any {
	text := func(value string) any {
		if value == "" {
			return nil
		}
		return value
	}
	list := func(l []string) any {
		if len(l) == 0 {
			return nil
		}
		return l
	}
	return map[string]any{
		"plural": names.Plural, "kind": names.Kind, "singular": text(names.Singular), "listKind": text(names.ListKind),
		"shortNames": list(names.ShortNames), "categories": list(names.Categories),
	}
}
