package peers

import (
	"slices"
	"strings"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/objects"
)

// resource is a resource in one version.
type resource = schema.GroupVersionResource

// servingIndex maps resources to the identities of the replicas that serve them. version is the
// version of the storage versions that it was built from.
type servingIndex struct {
	version objects.Version
	serving map[resource][]string
}

// isCustom reports whether a storage version belongs to a custom resource.
func isCustom(version *apiserverinternalv1alpha1.StorageVersion) bool {
	return slices.ContainsFunc(version.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "CustomResourceDefinition"
	})
}

// servingReplicas returns the current map from resources to replicas.
func (p *Peers) servingReplicas() map[resource][]string {
	current := p.index.Load()
	if current.serving != nil && current.version == p.Store.Snapshot().Version() {
		return current.serving
	}
	p.indexUpdates.Lock()
	defer p.indexUpdates.Unlock()
	snapshot := p.Store.Snapshot()
	current = p.index.Load() // another goroutine may have updated the index
	if current.serving != nil && current.version == snapshot.Version() {
		return current.serving
	}
	next := &servingIndex{version: snapshot.Version(), serving: map[resource][]string{}}
	snapshot.Ascend(p.Store.Prefix(), "", func(entry *objects.Entry) bool {
		version, err := p.Decode(entry)
		if err != nil {
			p.Logger.Warn("failed to decode storage version; requests for its resource are not proxied",
				"storageversion", entry.Name(), "error", err)
			return true
		}
		if isCustom(version) {
			return true // every replica serves defined resources
		}
		next.add(version)
		return true
	})
	p.index.Store(next)
	return next.serving
}

// add adds the replicas that serve the resource of a storage version.
func (s *servingIndex) add(version *apiserverinternalv1alpha1.StorageVersion) {
	// The name is group.resource, where the core group is called core. A served version contains
	// its group too, which may be another group with the same objects.
	name := version.Name[strings.LastIndex(version.Name, ".")+1:]
	for _, replica := range version.Status.StorageVersions {
		for _, text := range replica.ServedVersions {
			gv, err := schema.ParseGroupVersion(text)
			if err != nil {
				continue
			}
			servedResource := gv.WithResource(name)
			if !slices.Contains(s.serving[servedResource], replica.APIServerID) {
				s.serving[servedResource] = append(s.serving[servedResource], replica.APIServerID)
			}
		}
	}
}
