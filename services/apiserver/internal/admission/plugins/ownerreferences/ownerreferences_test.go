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

// may lists the rights of the user as verb:group/resource/subresource:namespace/name.
type may []string

func (m may) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	key := a.Verb + ":" + a.Group + "/" + a.ResourceName + "/" + a.Subresource + ":" + a.Namespace + "/" + a.Name
	if a.Resource && a.User.Name == "u" && slices.Contains(m, key) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

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

func ref(version, kind, uid string, block bool) metav1.OwnerReference {
	r := metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "d", UID: types.UID(uid)}
	if block {
		r.BlockOwnerDeletion = &block
	}
	return r
}

// TestOwnerChangesRequirePermission checks which rights a change of owner references requires.
func TestOwnerChangesRequirePermission(t *testing.T) {
	free := ref("apps/v1", "Deployment", "u", false)
	held := ref("apps/v1", "Deployment", "u", true)
	node := ref("v1", "Node", "n", true)
	zed := ref("x.y/v1", "Zed", "z", true)
	const (
		remove   = "delete:/configmaps/:ns/c"
		finalize = "update:apps/deployments/finalizers:ns/d"
		ofNode   = "update:/nodes/finalizers:/d"
		all      = "update:*/*/finalizers:/*"
		notOwner = `configmaps "c" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>`
		notMine  = `configmaps "c" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>`
	)
	for name, c := range map[string]struct {
		rights may
		o, old *corev1.ConfigMap
		sub    string
		pods   bool
		want   string
	}{
		"created with an owner":       {o: owned(free)},
		"created, holds":              {o: owned(held), want: notOwner},
		"created, holds, may":         {rights: may{finalize}, o: owned(held)},
		"created, holds a node":       {rights: may{ofNode}, o: owned(node)},
		"created, holds, may all":     {rights: may{all}, o: owned(held, zed)},
		"created, holds two, may one": {rights: may{finalize}, o: owned(held, node), want: notOwner},
		"created, holds what is unknown": {
			o:    owned(zed),
			want: `configmaps "c" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion x.y/v1 Kind Zed: no matches for kind "Zed" in version "x.y/v1"`,
		},
		"created, holds what is not a group": {
			o:    owned(ref("a/b/c", "Zed", "z", true)),
			want: `configmaps "c" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion a/b/c Kind Zed: unexpected GroupVersion string: a/b/c`,
		},
		"unchanged":              {o: owned(held), old: owned(held)},
		"none before and after":  {o: owned(), old: owned()},
		"given an owner":         {o: owned(free), old: owned(), want: notMine},
		"given an owner, may":    {rights: may{remove}, o: owned(free), old: owned()},
		"freed":                  {o: owned(), old: owned(free), want: notMine},
		"begins to block":        {rights: may{remove}, o: owned(held), old: owned(free), want: notOwner},
		"begins to block, may":   {rights: may{remove, finalize}, o: owned(held), old: owned(free)},
		"held before":            {rights: may{remove}, o: owned(held, ref("v1", "Node", "o", false)), old: owned(held)},
		"through a sub-resource": {rights: may{remove}, o: owned(free), old: owned(), sub: "status", want: notMine},
		"of a pod itself": {
			o: owned(free), old: owned(), pods: true,
			want: `pods "c" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>`,
		},
		"created, says that it does not": {o: owned(metav1.OwnerReference{APIVersion: "v1", Kind: "Node", BlockOwnerDeletion: new(bool)})},
		"status of pods":                 {o: owned(free), old: owned(), sub: "status", pods: true},
	} {
		resource := "configmaps"
		if c.pods {
			resource = "pods"
		}
		r := &admission.Request{
			Operation:   admission.Create,
			Resource:    &registry.Kind{Names: registry.Names{Version: "v1", Resource: resource}},
			Subresource: c.sub,
			Namespace:   "ns",
			Name:        "c",
			Object:      c.o,
			User:        &request.User{Name: "u"},
		}
		if c.old != nil {
			r.Operation, r.OldObject = admission.Update, c.old
		}
		err := (&ownerreferences.Plugin{Authorizer: c.rights, KindOf: kindOf}).Validate(t.Context(), r)
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestRequestsWithoutOwners checks that deletes and objects without metadata need no permission.
func TestRequestsWithoutOwners(t *testing.T) {
	kind := &registry.Kind{Names: registry.Names{Version: "v1", Resource: "configmaps"}}
	for _, r := range []*admission.Request{
		{Operation: admission.Delete, OldObject: owned(ref("v1", "Node", "n", true))},
		{Operation: admission.Connect, Object: owned(ref("v1", "Node", "n", true))},
		{Operation: admission.Create, Object: &metav1.Status{}},
	} {
		r.Resource, r.Namespace, r.Name, r.User = kind, "ns", "c", &request.User{Name: "u"}
		if err := (&ownerreferences.Plugin{Authorizer: may{}, KindOf: kindOf}).Validate(t.Context(), r); err != nil {
			t.Errorf("%s: got %v, want no error", r.Operation, err)
		}
	}
}
