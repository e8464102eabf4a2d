// Package ownerreferences prevents users from deleting objects through their owners without
// permission to delete the objects, and from blocking the deletion of owners without permission to
// set their finalizers.
package ownerreferences

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/security/authz"
)

// Name is the name of the plugin in flags and configuration.
const Name = "OwnerReferencesPermissionEnforcement"

// Plugin implements admission.Validator.
type Plugin struct {
	Authorizer authz.Authorizer
	// KindOf returns the declaration of a kind, or nil if the kind is not served.
	KindOf func(schema.GroupVersionKind) *registry.Kind
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	// Writes of a pod's status are skipped: they do not change the owners, even though old kubelets
	// send other ones.
	if req.Operation != admission.Create && req.Operation != admission.Update || req.IsResource("", "pods") && req.Subresource == "status" {
		return nil
	}
	references, oldReferences := ownersOf(req.Object), ownersOf(req.OldObject)
	if sameReferences(references, oldReferences) {
		return nil
	}
	// A new object may name owners without this check, because there is nothing to delete yet.
	if req.Operation != admission.Create {
		decision, reason, err := p.Authorizer.Authorize(ctx, &authz.Attributes{
			User: req.User, Verb: "delete", Resource: true, Namespace: req.Namespace, Group: req.Resource.Group, Version: req.Resource.Version,
			ResourceName: req.Resource.Resource, Subresource: req.Subresource, Name: req.Name,
		})
		if decision != authz.Allow {
			return req.Forbiddenf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err)
		}
	}
	blocking := newlyBlocking(references, oldReferences)
	if len(blocking) == 0 || p.mayFinalizeAll(ctx, req) {
		return nil
	}
	for i := range blocking {
		if err := p.checkMayBlock(ctx, req, &blocking[i]); err != nil {
			return req.Forbidden(err)
		}
	}
	return nil
}

// mayFinalizeAll reports whether the user may set the finalizers of every object.
func (p *Plugin) mayFinalizeAll(ctx context.Context, r *admission.Request) bool {
	decision, _, _ := p.Authorizer.Authorize(ctx, &authz.Attributes{ // an error grants no permission
		User:         r.User,
		Verb:         "update",
		Resource:     true,
		Group:        "*",
		Version:      "*",
		ResourceName: "*",
		Subresource:  "finalizers",
		Name:         "*",
	})
	return decision == authz.Allow
}

// checkMayBlock checks that the user may update the finalizers of an owner whose deletion the object
// blocks.
func (p *Plugin) checkMayBlock(ctx context.Context, req *admission.Request, ref *metav1.OwnerReference) error {
	kind, err := p.ownerKind(ref)
	if err != nil {
		return fmt.Errorf(
			"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w",
			ref.APIVersion, ref.Kind, err)
	}
	expected := &authz.Attributes{
		User:         req.User,
		Verb:         "update",
		Resource:     true,
		Group:        kind.Group,
		Version:      kind.Version,
		ResourceName: kind.Resource,
		Subresource:  "finalizers",
		Name:         ref.Name,
	}
	if kind.Namespaced { // an owner is in the namespace of its dependents
		expected.Namespace = req.Namespace
	}
	if d, reason, err := p.Authorizer.Authorize(ctx, expected); d != authz.Allow {
		return fmt.Errorf(
			"cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v",
			reason, err) //nolint:errorlint // the wording is the API's
	}
	return nil
}

// ownerKind returns the declaration of an owner's kind. It returns an error if the kind is not
// served.
func (p *Plugin) ownerKind(ref *metav1.OwnerReference) (*registry.Kind, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	if k := p.KindOf(gv.WithKind(ref.Kind)); k != nil {
		return k, nil
	}
	return nil, &meta.NoKindMatchError{GroupKind: gv.WithKind(ref.Kind).GroupKind(), SearchedVersions: []string{gv.Version}}
}

// ownersOf returns the owner references of an object, which may be nil.
func ownersOf(o runtime.Object) []metav1.OwnerReference {
	if o == nil {
		return nil
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return nil // an object without metadata has no owners
	}
	return m.GetOwnerReferences()
}

// sameReferences compares references. An empty list equals nil.
func sameReferences(a, b []metav1.OwnerReference) bool {
	return len(a) == 0 && len(b) == 0 || semantic.Equal(a, b)
}

// newlyBlocking returns the references that block the deletion of their owner but did not do so in
// oldReferences.
func newlyBlocking(references, oldReferences []metav1.OwnerReference) (all []metav1.OwnerReference) {
	before := map[types.UID]bool{}
	for i := range oldReferences {
		before[oldReferences[i].UID] = blocksDeletion(&oldReferences[i])
	}
	for i := range references {
		if blocksDeletion(&references[i]) && !before[references[i].UID] {
			all = append(all, references[i])
		}
	}
	return all
}

// blocksDeletion reports whether a reference blocks the deletion of its owner.
func blocksDeletion(r *metav1.OwnerReference) bool {
	return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
}
