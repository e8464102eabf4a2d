// Package resources tracks which resources the API server serves.
//
// A Table is an immutable result of discovery. A Cache holds the newest one and discovers again on
// demand. Resources that do not change between two discoveries keep their address, so a *Resource
// identifies a resource.
//
// The graph and the controllers call it. All functions are safe for concurrent use.
package resources

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Resource is a served resource in one version.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	verbs      string // separated and enclosed by commas
}

// Can reports whether the resource supports all verbs.
func (r *Resource) Can(verbs ...string) bool {
	for _, v := range verbs {
		if !contains(r.verbs, v) {
			return false
		}
	}
	return true
}

// APIVersion returns the group and version in the form of manifests.
func (r *Resource) APIVersion() string { return r.GroupVersion().String() }

// Table is the result of one discovery.
type Table struct {
	// Preferred holds every served resource once, in the preferred version of its group.
	Preferred []*Resource
	// Stale holds the resources of group versions whose discovery failed, as last seen.
	Stale []*Resource
	// Failure is the error of group versions whose discovery failed. It is nil if there is none.
	Failure error

	byKind map[schema.GroupVersionKind]*Resource
}

// UnknownKindError reports a kind that no table contains. The kind may be served later.
type UnknownKindError struct{ APIVersion, Kind string }

// Error implements error.
func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("unable to get REST mapping for %s/%s.", e.APIVersion, e.Kind)
}

// ByKind returns the resource of a kind. The error is an UnknownKindError.
func (t *Table) ByKind(apiVersion, kind string) (*Resource, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err == nil {
		if r := t.byKind[gv.WithKind(kind)]; r != nil {
			return r, nil
		}
	}
	return nil, &UnknownKindError{apiVersion, kind}
}

// discover returns a new table. Resources that equal those of before are reused. Only a failure
// that leaves everything unknown is an error.
func discover(d discovery.DiscoveryInterface, before *Table) (*Table, error) {
	groups, lists, err := d.ServerGroupsAndResources()
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return nil, err
	}
	t := &Table{byKind: map[schema.GroupVersionKind]*Resource{}, Failure: err}
	byVersion := map[string][]*Resource{}
	for _, list := range lists {
		all, err := t.add(list, before)
		if err != nil { // one server's mistake must not hide the other resources
			t.Failure = errors.Join(t.Failure, err)
			continue
		}
		byVersion[list.GroupVersion] = all
	}
	t.prefer(groups, byVersion)
	if partial != nil && before != nil {
		t.keep(before, partial.Groups)
	}
	return t, nil
}

// add adds the resources of a group version, without subresources.
func (t *Table) add(list *metav1.APIResourceList, before *Table) ([]*Resource, error) {
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return nil, err
	}
	var all []*Resource
	for i := range list.APIResources {
		a := &list.APIResources[i]
		if isSubresource(a.Name) {
			continue
		}
		r := &Resource{
			GroupVersionResource: gv.WithResource(a.Name),
			Kind:                 a.Kind,
			Namespaced:           a.Namespaced,
			verbs:                join(a.Verbs),
		}
		if a.Group != "" {
			r.Group = a.Group
		}
		if a.Version != "" {
			r.Version = a.Version
		}
		kind := gv.WithKind(a.Kind)
		if before != nil {
			if old := before.byKind[kind]; old != nil && *old == *r {
				r = old
			}
		}
		if t.byKind[kind] == nil {
			t.byKind[kind] = r
		}
		all = append(all, r)
	}
	return all, nil
}

// prefer chooses one version of each resource: the preferred version of the group if it has the
// resource, otherwise the first version in the order of discovery.
func (t *Table) prefer(groups []*metav1.APIGroup, byVersion map[string][]*Resource) {
	seen := map[schema.GroupResource]bool{}
	for _, g := range groups {
		versions := []string{g.PreferredVersion.GroupVersion}
		for _, v := range g.Versions {
			versions = append(versions, v.GroupVersion)
		}
		for _, v := range versions {
			for _, r := range byVersion[v] {
				if seen[r.GroupResource()] {
					continue
				}
				seen[r.GroupResource()] = true
				t.Preferred = append(t.Preferred, r)
			}
		}
	}
}

// keep takes over the resources of group versions whose discovery failed.
func (t *Table) keep(before *Table, failed map[schema.GroupVersion]error) {
	for kind, r := range before.byKind {
		if _, ok := failed[kind.GroupVersion()]; ok && t.byKind[kind] == nil {
			t.byKind[kind] = r
		}
	}
	for _, r := range slices.Concat(before.Preferred, before.Stale) {
		if _, ok := failed[r.GroupVersion()]; ok {
			t.Stale = append(t.Stale, r)
		}
	}
}
