package build

import (
	"context"
	"time"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/controllers/storageversions"
	"binnacle/services/apiserver/internal/crd/kind"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// newStorageVersions creates the manager of StorageVersion objects of this replica. It returns nil if
// a required gate is disabled.
func newStorageVersions(b *base, c *catalogs, client *internalclient.Client, informer *crdinformer.Server) *storageversions.Manager {
	if on := b.gates.Enabled; !on(features.StorageVersionAPI) || !on(features.APIServerIdentity) {
		return nil
	}
	m := storageversions.New(client, b.identity, c.catalog, c.served, time.Now)
	// The manager sees changed definitions before they are served.
	informer.OnSwapping(func(s kind.Update) {
		var definitions []*apiextensionsv1.CustomResourceDefinition
		for d := range s.All {
			definitions = append(definitions, d.CustomResourceDefinition)
		}
		m.Define(definitions)
	})
	b.life.whileServing("storage versions of custom resources", func(ctx context.Context) error { return m.Run(ctx, b.log) })
	return m
}
