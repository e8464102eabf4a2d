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

// sayStorageVersions makes what says which versions this replica stores, behind its gates.
func (p *parts) sayStorageVersions(identity string) func(context.Context) error {
	if on := p.options.Features.Enabled; !on(features.StorageVersionAPI) || !on(features.APIServerIdentity) {
		return nil
	}
	m := storageversions.New(p.loopback, identity, p.catalog, p.served, time.Now)
	p.held, p.storing = m.Held, m
	return m.Update
}

// storeAsDefined takes up what is defined, before it is served.
func (p *parts) storeAsDefined(s crdinformer.Swap) {
	if p.storing == nil {
		return
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for d := range s.All {
		definitions = append(definitions, d.CustomResourceDefinition)
	}
	p.storing.Define(definitions)
}

// storageVersionTasks say in which versions custom resources are stored.
func (p *parts) storageVersionTasks() []task.Task {
	if p.storing == nil {
		return nil
	}
	return []task.Task{{Name: "storage versions of custom resources", Run: func(ctx context.Context) error { return p.storing.Run(ctx, p.log) }}}
}
