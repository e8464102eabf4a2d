package build

import (
	"context"
	"time"

	"binnacle/libs/features"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/controllers/storageversions"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// newStorageVersions creates the manager of StorageVersion objects of this replica, and returns its
// update function. It returns nil if a required gate is disabled.
func (p *parts) newStorageVersions(identity string) func(context.Context) error {
	if on := p.options.Features.Enabled; !on(features.StorageVersionAPI) || !on(features.APIServerIdentity) {
		return nil
	}
	m := storageversions.New(p.client, identity, p.catalog, p.served, time.Now)
	p.writesBlocked, p.storageVersions = m.Held, m
	return m.Update
}

// updateStorageVersions passes changed definitions to the manager before they are served.
func (p *parts) updateStorageVersions(s crdinformer.Swap) {
	if p.storageVersions == nil {
		return
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for d := range s.All {
		definitions = append(definitions, d.CustomResourceDefinition)
	}
	p.storageVersions.Define(definitions)
}

// storageVersionTasks returns the task that writes the storage versions of custom resources.
func (p *parts) storageVersionTasks() []task.Task {
	if p.storageVersions == nil {
		return nil
	}
	return []task.Task{{Name: "storage versions of custom resources", Run: func(ctx context.Context) error { return p.storageVersions.Run(ctx, p.log) }}}
}
