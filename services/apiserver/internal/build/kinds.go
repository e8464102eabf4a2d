package build

import (
	"context"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/writes"
)

// serveKinds creates the API sets that requests see.
func (p *parts) serveKinds(context.Context) (err error) {
	p.fields = apply.New(p.catalog, time.Now)
	b := apiset.Builder{Codec: p.codec, Cache: p.cache, Elsewhere: p.stores.overrideClusters.caches(), Root: p.base.root, Fields: p.fields}
	all := b.Set(p.catalog, 0)
	p.allKinds, p.kinds = apiset.NewLive(all), apiset.NewLive(all.Only(p.served))
	p.client = &internalclient.Client{Doer: &internalclient.Server{
		Kinds: p.allKinds, Cache: p.cache, Codec: p.codec, Writes: func() *writes.Writer { return p.writes }, Logger: p.log, Audit: p.audit.auditor,
		Metrics: internalclient.NewMetrics(p.metrics), Traces: p.traces,
	}}
	p.pruneSeries()
	p.typeChecks = p.newTypeChecks()
	if p.definitionInformer, err = p.newDefinitionInformer(b); err != nil {
		return err
	}
	p.definitionInformer.OnSwapping(p.updateStorageVersions)
	p.definitionInformer.OnSwapped(func(s crdinformer.Swap) {
		p.documents.set(s.Changed)
		p.customVersions.set(s.Changed, s.Complete)
		p.typeChecks.set(s)
	})
	return nil
}
