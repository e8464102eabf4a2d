package endpoints

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/apply"
	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// managers makes the field managers of a kind, by sub-resource; "" is the
// object itself.
func managers(f *apply.Fields, k *registry.Kind) map[string]*apply.Manager {
	m := map[string]*apply.Manager{"": f.Manager(k, nil)}
	for i := range k.Subresources {
		s := &k.Subresources[i]
		m[s.Name] = f.Manager(k, s)
	}
	return m
}

// operationKind declares what a sub-resource shows that is a kind of its own.
func operationKind(gvk schema.GroupVersionKind, make func() runtime.Object) *registry.Kind {
	return &registry.Kind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Virtual: true, New: make}
}

// manager keeps the field ownership of what this call writes.
func (c *call) manager() *apply.Manager {
	if c.sub == nil {
		return c.managers[""]
	}
	return c.managers[c.sub.Name]
}

// fieldManager is who writes: what the client says, else the beginning of its
// user agent (specification: "Field ownership (server-side apply) rules").
func fieldManager(r *http.Request, asked string) string {
	if asked != "" {
		return asked
	}
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	var b strings.Builder
	for _, char := range agent {
		if !unicode.IsPrint(char) {
			continue
		}
		if b.Len()+utf8.RuneLen(char) > metav1validation.FieldManagerMaxLength {
			break
		}
		b.WriteRune(char)
	}
	return b.String()
}

// mayCreate asks whether a write that finds nothing may create it: an update or
// an apply alone does not allow that.
func (a *API) mayCreate(c *call) error {
	attrs := authz.AttributesOf(request.UserFrom(c.ctx()), c.info)
	attrs.Verb = "create"
	d, reason, err := a.Authorizer.Authorize(c.ctx(), attrs)
	if d == authz.Allow {
		return nil
	}
	if err != nil {
		a.Logger.Warn("authorization failed", "path", c.r.URL.Path, "error", err)
	}
	return authz.Forbidden(attrs, reason)
}

// own records who owns the fields of obj, which the request makes of live; nil
// is nothing. Objects that cannot be compared lose what was recorded: it would
// no longer be true.
func (a *API) own(c *call, live, obj registry.Object, o *writeOptions) {
	if !o.merged { // by an apply, which has done it
		a.ownBy(c, c.manager(), live, obj, o)
	}
}

func (a *API) ownBy(c *call, m *apply.Manager, live, obj registry.Object, o *writeOptions) {
	if err := m.Update(live, obj, fieldManager(c.r, o.fieldManager)); err != nil {
		a.Logger.Debug("fields are not owned", "resource", c.Resource, "namespace", obj.GetNamespace(), "name", obj.GetName(), "error", err)
		obj.SetManagedFields(nil)
	}
}

// mutate runs mutating admission. What that makes of managedFields is taken back
// where it cannot be read.
func (a *API) mutate(c *call, obj registry.Object, attrs *admission.Attributes) error {
	before := slices.Clone(obj.GetManagedFields())
	if err := a.Admission.Mutate(c.ctx(), attrs); err != nil {
		return err
	}
	if after := obj.GetManagedFields(); !apply.SameButTimes(before, after) {
		if err := c.manager().Check(after); err != nil {
			obj.SetManagedFields(before)
			request.Warn(c.ctx(), fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
		}
	}
	c.uniqueOwners(obj, true)
	return nil
}

// settle takes back new times in managedFields where nothing else changed.
func (c *call) settle(obj, old registry.Object) {
	if now, before := obj.GetManagedFields(), old.GetManagedFields(); apply.SameButTimes(now, before) && c.manager().Equal(obj, old) {
		obj.SetManagedFields(before)
	}
}

// uniqueOwners leaves out owner references that are there twice, and says so.
func (c *call) uniqueOwners(obj registry.Object, admitted bool) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	var unique []metav1.OwnerReference
	var twice []string
	for _, r := range refs {
		if slices.ContainsFunc(unique, func(u metav1.OwnerReference) bool { return equalReference(u, r) }) {
			if !slices.Contains(twice, string(r.UID)) {
				twice = append(twice, string(r.UID))
			}
			continue
		}
		unique = append(unique, r)
	}
	if len(twice) == 0 {
		return
	}
	obj.SetOwnerReferences(unique)
	format := ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
	if admitted {
		format = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
	}
	request.Warn(c.ctx(), fmt.Sprintf(format, strings.Join(twice, ", ")))
}

func equalReference(a, b metav1.OwnerReference) bool {
	equal := func(x, y *bool) bool { return x == nil && y == nil || x != nil && y != nil && *x == *y }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		equal(a.Controller, b.Controller) && equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}
