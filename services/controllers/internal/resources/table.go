// Package resources tracks which resources the API server serves.
//
// A Table is an immutable result of discovery. A Cache holds the newest one and discovers again on
// demand. Resources that do not change between two discoveries keep their address, so a *Resource
// identifies a resource.
//
// The graph and the controllers call it. All functions are safe for concurrent use.
package resources

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		if !containsVerb(r.verbs, v) {
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

// discover returns a new table. It reuses the resources of before, which may be nil, that have not
// changed. It returns an error only if no group is known. Other failures are in the table.
func discover(ctx context.Context, d Discovery, before *Table) (*Table, error) {
	groups, err := d.Groups(ctx)
	if err != nil {
		return nil, err
	}
	table := &Table{byKind: map[schema.GroupVersionKind]*Resource{}}
	var stale []schema.GroupVersion
	seen := map[schema.GroupResource]bool{}
	for i := range groups {
		// The preferred version of a group is the first one.
		for j := range groups[i].Versions {
			version := &groups[i].Versions[j]
			groupVersion := schema.GroupVersion{Group: groups[i].Name, Version: version.Version}
			if version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				stale = append(stale, groupVersion)
				continue
			}
			// An invalid name must not hide the other resources.
			if _, err := schema.ParseGroupVersion(groupVersion.String()); err != nil {
				table.Failure = errors.Join(table.Failure, err)
				continue
			}
			for _, resource := range table.addGroupVersion(groupVersion, version.Resources, before) {
				if !seen[resource.GroupResource()] {
					seen[resource.GroupResource()] = true
					table.Preferred = append(table.Preferred, resource)
				}
			}
		}
	}
	if len(stale) > 0 {
		table.Failure = errors.Join(&StaleError{stale}, table.Failure)
		if before != nil {
			table.keepStale(before, stale)
		}
	}
	return table, nil
}

// addGroupVersion adds the resources of a group version, without subresources.
func (t *Table) addGroupVersion(
	groupVersion schema.GroupVersion, list []apidiscoveryv2.APIResourceDiscovery, before *Table,
) []*Resource {
	var all []*Resource
	for i := range list {
		discovered := &list[i]
		// A parent that exists only for its subresources has no kind.
		noKind := discovered.ResponseKind == nil || *discovered.ResponseKind == metav1.GroupVersionKind{}
		if noKind || isSubresource(discovered.Resource) {
			continue
		}
		resource := &Resource{
			GroupVersionResource: groupVersion.WithResource(discovered.Resource),
			Kind:                 discovered.ResponseKind.Kind,
			Namespaced:           discovered.Scope == apidiscoveryv2.ScopeNamespace,
			verbs:                joinVerbs(discovered.Verbs),
		}
		kind := groupVersion.WithKind(resource.Kind)
		if before != nil {
			if old := before.byKind[kind]; old != nil && *old == *resource {
				resource = old
			}
		}
		if t.byKind[kind] == nil {
			t.byKind[kind] = resource
		}
		all = append(all, resource)
	}
	return all
}

// keepStale takes over the resources of stale group versions.
func (t *Table) keepStale(before *Table, stale []schema.GroupVersion) {
	for kind, r := range before.byKind {
		if slices.Contains(stale, kind.GroupVersion()) && t.byKind[kind] == nil {
			t.byKind[kind] = r
		}
	}
	for _, r := range slices.Concat(before.Preferred, before.Stale) {
		if slices.Contains(stale, r.GroupVersion()) {
			t.Stale = append(t.Stale, r)
		}
	}
}
