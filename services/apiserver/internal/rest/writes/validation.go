package writes

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// checkNamespace checks the body's namespace against the path's.
func (r *Request) checkNamespace(obj registry.Object) error {
	if !r.Resource.Namespaced {
		obj.SetNamespace("") // cluster-scoped: the client's value is ignored
		return nil
	}
	if ns := obj.GetNamespace(); ns != "" && ns != r.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// checkCreation checks the body's namespace and, if the path has a name, the body's name. The
// request was authorized to create an object of that name.
func (r *Request) checkCreation(obj registry.Object) error {
	if err := r.checkNamespace(obj); err != nil {
		return err
	}
	hasNoName := obj.GetName() == "" && obj.GetGenerateName() == ""
	if r.Name == "" || hasNoName {
		return nil
	}
	return r.checkName(obj)
}

// checkName checks the body's name and namespace against the path's.
func (r *Request) checkName(obj registry.Object) error {
	name := obj.GetName()
	switch {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided",
			r.Name))
	case name != r.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, r.Name))
	}
	if ns := obj.GetNamespace(); r.Resource.Namespaced && ns != "" && ns != r.Namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)",
			ns, r.Namespace))
	}
	return nil
}

// checkIdentity checks the namespace and the name of a patched object, and sets its namespace.
func (r *Request) checkIdentity(obj registry.Object) error {
	if err := r.checkNamespace(obj); err != nil {
		return err
	}
	obj.SetNamespace(r.objectNamespace())
	return r.checkName(obj)
}

// admitComplete runs the last steps of admission on a complete object: the validating phase and the
// quota charge. It returns allocated joined with the reservation of the quota. After an error, it has
// rolled both back.
func (w *Writer) admitComplete(
	ctx context.Context,
	attrs *admission.Request,
	allocated admission.Reservation,
) (admission.Reservation, error) {
	err := w.Admission.Validate(ctx, attrs)
	if err != nil {
		allocated.Rollback(ctx)
		return nil, err
	}
	charged, err := w.Admission.Reserve(ctx, attrs)
	if err != nil {
		allocated.Rollback(ctx)
		return nil, err
	}
	return admission.Reservations{allocated, charged}, nil
}

// validateCreate validates a new object. text is the result of KindCodec.ServedJSON for obj.
func (w *Writer) validateCreate(ctx context.Context, r *Request, obj registry.Object, text []byte) field.ErrorList {
	errs := meta.ValidateCreate(r.Resource.Kind, obj)
	errs = append(errs, r.validateDocument(ctx, errs, obj, text, nil)...)
	if r.Resource.Create.Validate != nil {
		kindErrors := r.Resource.Create.Validate(obj)
		if len(kindErrors) > 0 && r.Resource.Create.RulesFirst {
			errs = nil // as in Kubernetes, these kinds do not report errors of the metadata then
		}
		errs = append(errs, kindErrors...)
	}
	return w.addDeclarativeErrors(r.Resource.Kind, obj, errs)
}

// checkType rejects an object without a Go type whose kind or apiVersion differs from that of the
// resource.
func (r *Request) checkType(obj registry.Object) error {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var errs field.ErrorList
	if expected := r.Resource.Kind.Kind; object.GetKind() != expected {
		errs = append(errs, field.Invalid(field.NewPath("kind"), object.GetKind(), "must be "+expected))
	}
	if expected := r.Resource.GroupVersion().String(); object.GetAPIVersion() != expected {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), object.GetAPIVersion(), "must be "+expected))
	}
	if len(errs) == 0 {
		return nil
	}
	return status.Invalid(object.GroupVersionKind().GroupKind(), object.GetName(), errs)
}

// validateDocument validates an object without a Go type against its schema. metadataErrors are the
// errors that the validation of its metadata found. text and oldText are the served documents of the
// object and of the live object; oldText is nil for a creation.
func (r *Request) validateDocument(
	ctx context.Context,
	metadataErrors field.ErrorList,
	obj registry.Object,
	text, oldText []byte,
) field.ErrorList {
	subresource := ""
	if r.Sub != nil {
		subresource = r.Sub.Name
	}
	return r.Resource.ValidateDocument(ctx, registry.DocumentWrite{
		Object:         obj,
		JSON:           text,
		OldJSON:        oldText,
		MetadataErrors: metadataErrors,
		Subresource:    subresource,
		Warn:           func(text string) { request.Warn(ctx, text) },
		// The result is ignored, because the cost of rules is bounded.
		BeforeCostlyRules: func() { _ = request.Estimate(ctx, request.LargeBody) },
	})
}

// addWarnings adds the warnings of the kind about a new object.
func (r *Request) addWarnings(ctx context.Context, obj registry.Object) {
	if r.Resource.Create.Warnings == nil {
		return
	}
	for _, w := range r.Resource.Create.Warnings(obj) {
		request.Warn(ctx, w)
	}
}

// addUpdateWarnings adds the warnings of the kind, or of the subresource, about a change.
func (r *Request) addUpdateWarnings(ctx context.Context, obj, old registry.Object) {
	switch {
	case r.Sub != nil:
		if r.Sub.Warnings == nil {
			return
		}
		for _, w := range r.Sub.Warnings(obj) {
			request.Warn(ctx, w)
		}
	case r.Resource.Update.Warnings == nil:
		r.addWarnings(ctx, obj)
	default:
		for _, w := range r.Resource.Update.Warnings(obj, old) {
			request.Warn(ctx, w)
		}
	}
}

// addDeclarativeErrors runs the declarative validation of a kind. errs holds the errors of the
// handwritten validation. It returns the errors that the client gets.
func (w *Writer) addDeclarativeErrors(kind *registry.Kind, obj registry.Object, errs field.ErrorList) field.ErrorList {
	if kind.DeclarativeValidation == nil || !w.Declared.Enabled {
		return errs
	}
	declared, ok := w.validateDeclared(kind, obj)
	if !ok && !w.Declared.Takeover {
		return errs
	}
	for _, difference := range unmatchedErrors(errs.ExtractCoveredByDeclarative(), declared) {
		w.Metrics.mismatches.Inc()
		w.Logger.Warn("declarative and handwritten validation differ", "kind", kind.GVK().String(),
			"difference", difference, "takeover", w.Declared.Takeover)
	}
	if !w.Declared.Takeover {
		return errs
	}
	return append(errs.RemoveCoveredByDeclarative(), declared...)
}

// validateDeclared runs the declarative validation. If it panics, ok is false and errs holds the
// panic.
func (w *Writer) validateDeclared(kind *registry.Kind, obj registry.Object) (errs field.ErrorList, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			w.Metrics.panics.Inc()
			w.Logger.Error("panic during declared validation", "kind", kind.GVK().String(), "panic", r)
			errs = field.ErrorList{field.InternalError(nil, fmt.Errorf("panic during declarative validation: %v", r))}
			ok = false
		}
	}()
	return kind.DeclarativeValidation(obj), true
}

// unmatchedErrors returns the errors that only one side reports. Two errors are equal if they have
// the same type, origin and field.
func unmatchedErrors(handwritten, declared field.ErrorList) (differences []string) {
	matcher := field.ErrorMatcher{}.ByType().ByField().ByOrigin()
	addUnmatched := func(side string, errs, otherSide field.ErrorList) {
		for _, e := range errs {
			if !slices.ContainsFunc(otherSide, func(o *field.Error) bool { return matcher.Matches(e, o) }) {
				differences = append(differences, side+" only: "+e.Error())
			}
		}
	}
	addUnmatched("written", handwritten, declared)
	addUnmatched("declared", declared, handwritten)
	return differences
}

// The texts of the warning about duplicate owner references, as in Kubernetes.
const (
	duplicateOwners = ".metadata.ownerReferences contains duplicate entries; " + duplicateOwnersAdvice
	// duplicateOwnersAdmitted is for duplicates that are found after mutating admission.
	duplicateOwnersAdmitted = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; " +
		duplicateOwnersAdvice
	duplicateOwnersAdvice = "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; " +
		"please fix your requests; duplicate UID(s) observed: %v"
)

// removeDuplicateOwners removes duplicate owner references and warns the client with the text, which
// formats the UIDs of the duplicates.
func removeDuplicateOwners(ctx context.Context, obj registry.Object, warning string) {
	refs := obj.GetOwnerReferences()
	var unique []metav1.OwnerReference
	var duplicates []string // the UIDs of the removed references
	seen := newOwnerReferenceSet(refs)
	for i, r := range refs {
		if seen.isDuplicate(i) {
			if duplicates == nil { // usually there are none, so the list is copied only here
				unique = slices.Clone(refs[:i])
			}
			duplicates = append(duplicates, string(r.UID))
		} else if duplicates != nil {
			unique = append(unique, r)
		}
	}
	if len(duplicates) == 0 {
		return
	}
	obj.SetOwnerReferences(unique)
	request.Warn(ctx, fmt.Sprintf(warning, strings.Join(duplicates, ", ")))
}

// ownerReferenceSet detects duplicates in a list of owner references. It stores only their indices,
// because a list may have hundreds of thousands of them.
type ownerReferenceSet struct {
	all         []metav1.OwnerReference
	seed        maphash.Seed
	indexByHash map[uint64]int32 // nil for short lists, which are compared pairwise
}

// maxPairwise is the maximum length of a list of references that are compared pairwise.
const maxPairwise = 8

// newOwnerReferenceSet returns a set for a list of references. It contains none of them yet.
func newOwnerReferenceSet(all []metav1.OwnerReference) ownerReferenceSet {
	r := ownerReferenceSet{all: all}
	if len(all) > maxPairwise {
		r.seed = maphash.MakeSeed()
		r.indexByHash = make(map[uint64]int32, len(all))
	}
	return r
}

// isDuplicate reports whether the reference at index i equals an earlier one. It must be called for
// all indices in order.
func (r ownerReferenceSet) isDuplicate(i int) bool {
	candidate := comparableOf(r.all[i])
	if r.indexByHash == nil {
		return slices.ContainsFunc(r.all[:i], func(o metav1.OwnerReference) bool { return comparableOf(o) == candidate })
	}
	for h := maphash.Comparable(r.seed, candidate); ; h++ { // on a collision, try the next key
		index, found := r.indexByHash[h]
		if !found {
			r.indexByHash[h] = int32(i)
			return false
		}
		if comparableOf(r.all[index]) == candidate {
			return true
		}
	}
}

// comparableReference holds the fields of an owner reference in comparable form.
type comparableReference struct {
	apiVersion, kind, name string
	uid                    types.UID
	controller, blocks     optionalBool
}

// optionalBool is a *bool in comparable form.
type optionalBool struct{ set, value bool }

// comparableOf returns an owner reference in comparable form.
func comparableOf(r metav1.OwnerReference) comparableReference {
	flagOf := func(b *bool) optionalBool { return optionalBool{b != nil, b != nil && *b} }
	return comparableReference{r.APIVersion, r.Kind, r.Name, r.UID, flagOf(r.Controller), flagOf(r.BlockOwnerDeletion)}
}
