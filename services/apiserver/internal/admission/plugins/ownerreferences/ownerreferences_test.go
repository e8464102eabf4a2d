package ownerreferences_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/ownerreferences"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
)

// permissions lists what user u may do, as verb:group/resource/subresource:namespace/name.
type permissions []string

func (p permissions) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	key := a.Verb + ":" + a.Group + "/" + a.ResourceName + "/" + a.Subresource + ":" + a.Namespace + "/" + a.Name
	if a.Resource && a.User.Name == "u" && slices.Contains(p, key) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// kindOf returns the kinds of the owners in these tests, or nil for an unknown kind.
func kindOf(gvk schema.GroupVersionKind) *registry.Kind {
	switch gvk {
	case schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}:
		return &registry.Kind{Names: registry.Names{Group: "apps", Version: "v1", Resource: "deployments", Namespaced: true}}
	case schema.GroupVersionKind{Version: "v1", Kind: "Node"}:
		return &registry.Kind{Names: registry.Names{Version: "v1", Resource: "nodes"}}
	}
	return nil
}

// owned returns an object with owners.
func owned(refs ...metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refs}}
}

// ref returns a reference to an owner with the name d.
func ref(version, kind, uid string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "d", UID: types.UID(uid)}
}

// blockingRef returns a reference that blocks the deletion of the owner.
func blockingRef(version, kind, uid string) metav1.OwnerReference {
	r := ref(version, kind, uid)
	r.BlockOwnerDeletion = new(bool)
	*r.BlockOwnerDeletion = true
	return r
}

// TestOwnerChangesRequirePermission checks which rights a change of owner references requires.
func TestOwnerChangesRequirePermission(t *testing.T) {
	nonBlocking := ref("apps/v1", "Deployment", "u")
	blocking := blockingRef("apps/v1", "Deployment", "u")
	blockingNode := blockingRef("v1", "Node", "n")
	unknownKind := blockingRef("x.y/v1", "Zed", "z")
	const (
		deleteConfigMap    = "delete:/configmaps/:ns/c"
		finalizeDeployment = "update:apps/deployments/finalizers:ns/d"
		finalizeNode       = "update:/nodes/finalizers:/d"
		finalizeAll        = "update:*/*/finalizers:/*"
		cannotFinalize     = `configmaps "c" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>`
		cannotDelete       = `configmaps "c" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>`
	)
	for name, test := range map[string]struct {
		permissions permissions
		obj, old    *corev1.ConfigMap // without old, the request is a create
		subresource string
		ofPods      bool   // the resource is pods, not configmaps
		want        string // error
	}{
		"create with an owner":                    {obj: owned(nonBlocking)},
		"create, blocks":                          {obj: owned(blocking), want: cannotFinalize},
		"create, blocks, may finalize":            {permissions: permissions{finalizeDeployment}, obj: owned(blocking)},
		"create, blocks a node, may finalize":     {permissions: permissions{finalizeNode}, obj: owned(blockingNode)},
		"create, blocks, may finalize everything": {permissions: permissions{finalizeAll}, obj: owned(blocking, unknownKind)},
		"create, blocks two, may finalize one":    {permissions: permissions{finalizeDeployment}, obj: owned(blocking, blockingNode), want: cannotFinalize},
		"create, blocks an unknown kind": {
			obj:  owned(unknownKind),
			want: `configmaps "c" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion x.y/v1 Kind Zed: no matches for kind "Zed" in version "x.y/v1"`,
		},
		"create, blocks an owner of an invalid version": {
			obj:  owned(blockingRef("a/b/c", "Zed", "z")),
			want: `configmaps "c" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion a/b/c Kind Zed: unexpected GroupVersion string: a/b/c`,
		},
		"update, unchanged":                     {obj: owned(blocking), old: owned(blocking)},
		"update, no owners":                     {obj: owned(), old: owned()},
		"update adds an owner":                  {obj: owned(nonBlocking), old: owned(), want: cannotDelete},
		"update adds an owner, may delete":      {permissions: permissions{deleteConfigMap}, obj: owned(nonBlocking), old: owned()},
		"update removes the owner":              {obj: owned(), old: owned(nonBlocking), want: cannotDelete},
		"update begins to block":                {permissions: permissions{deleteConfigMap}, obj: owned(blocking), old: owned(nonBlocking), want: cannotFinalize},
		"update begins to block, may finalize":  {permissions: permissions{deleteConfigMap, finalizeDeployment}, obj: owned(blocking), old: owned(nonBlocking)},
		"update of an object that blocks":       {permissions: permissions{deleteConfigMap}, obj: owned(blocking, ref("v1", "Node", "o")), old: owned(blocking)},
		"update of a subresource adds an owner": {permissions: permissions{deleteConfigMap}, obj: owned(nonBlocking), old: owned(), subresource: "status", want: cannotDelete},
		"update of a pod adds an owner": {
			obj: owned(nonBlocking), old: owned(), ofPods: true,
			want: `pods "c" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>`,
		},
		"create, blockOwnerDeletion is false":    {obj: owned(metav1.OwnerReference{APIVersion: "v1", Kind: "Node", BlockOwnerDeletion: new(bool)})},
		"update of a pod's status adds an owner": {obj: owned(nonBlocking), old: owned(), subresource: "status", ofPods: true},
	} {
		resource := "configmaps"
		if test.ofPods {
			resource = "pods"
		}
		req := &admission.Request{
			Operation:   admission.Create,
			Resource:    &registry.Kind{Names: registry.Names{Version: "v1", Resource: resource}},
			Subresource: test.subresource,
			Namespace:   "ns",
			Name:        "c",
			Object:      test.obj,
			User:        &request.User{Name: "u"},
		}
		if test.old != nil {
			req.Operation, req.OldObject = admission.Update, test.old
		}
		err := (&ownerreferences.Plugin{Authorizer: test.permissions, KindOf: kindOf}).Validate(t.Context(), req)
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%s: got error %v, want %q (empty: none)", name, err, test.want)
		}
	}
}

// TestRequestsWithoutOwnersNeedNoPermission checks that deletes and objects without metadata need
// no permission.
func TestRequestsWithoutOwnersNeedNoPermission(t *testing.T) {
	kind := &registry.Kind{Names: registry.Names{Version: "v1", Resource: "configmaps"}}
	for _, req := range []*admission.Request{
		{Operation: admission.Delete, OldObject: owned(blockingRef("v1", "Node", "n"))},
		{Operation: admission.Connect, Object: owned(blockingRef("v1", "Node", "n"))},
		{Operation: admission.Create, Object: &metav1.Status{}},
	} {
		req.Resource, req.Namespace, req.Name, req.User = kind, "ns", "c", &request.User{Name: "u"}
		if err := (&ownerreferences.Plugin{Authorizer: permissions{}, KindOf: kindOf}).Validate(t.Context(), req); err != nil {
			t.Errorf("%s: got error %v, want none", req.Operation, err)
		}
	}
}
