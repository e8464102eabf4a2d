package build

import (
	"context"
	"fmt"

	"binnacle/libs/features"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/customdocs"
	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/rest/responsewriters"
)

// documents describe the API.
type documents struct {
	discovery *discovery.Documents
	openapi   *openapi.Service
	custom    *customdocs.Updater
}

// newDocuments creates the documents, which follow definitions and extension servers. paths returns
// the paths that are served in addition to the API.
func newDocuments(b *base, o *config.Options, c *catalogs, respond responsewriters.Responder, issuer bool, paths func() []string, remotes *aggregation.Aggregator, informer *crdinformer.Server) (*documents, error) {
	minor := o.Compatibility.Emulation().Minor
	docs, err := discovery.New(c.served, respond.Object, discovery.WithServerAddress(b.address), discovery.WithPaths(paths), discovery.WithVersionPriority(builtin.VersionPriority), discovery.WithVersion(version.Emulating(minor)))
	if err != nil {
		return nil, err
	}
	swagger, err := openapi.New(c.served, builtin.Documented, openapi.Options{CBOR: respond.Media.CBOR, Patches: patch.MediaTypes(true, respond.Media.CBOR), CustomPatches: patch.MediaTypes(false, false), Release: fmt.Sprintf("%s.%d", version.Major, minor), NoEnums: !b.gates.Enabled(features.OpenAPIEnums), Refuse: respond.Error})
	if err != nil {
		return nil, err
	}
	if issuer {
		swagger.DescribeIssuer()
	}
	d := &documents{discovery: docs, openapi: swagger, custom: customdocs.New(docs, swagger, remotes)}
	informer.OnSwapped(func(update kind.Update) { d.custom.Set(update.Changed) })
	return d, nil
}

// followAPIServices adds a task that follows the APIServices.
func followAPIServices(b *base, k *caches, remotes *aggregation.Aggregator, d *customdocs.Updater, v *bootstrap.CustomVersions) {
	store := k.lookup(apiServiceResource()).Store
	b.life.whileServing("apiservices of extension servers", func(ctx context.Context) error {
		return followChanges(ctx, store, func([]watchcache.Event) {
			d.ExtensionsChanged()
			v.Wake()
			remotes.Wake()
		})
	})
}
