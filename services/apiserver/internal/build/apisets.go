package build

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/storage/etcd"
)

// apiSets holds the API sets that requests see, and the client of the server itself.
type apiSets struct {
	// kinds is the API set of clients, allKinds that of the server itself.
	kinds, allKinds *apiset.Live
	builder         apiset.Builder
	fields          *apply.Fields
	// respond writes responses in the enabled media types.
	respond responsewriters.Responder
	// client sends requests of the server to itself.
	client *internalclient.Client
}

// newAPISets creates the sets of the built-in kinds. The client writes through the writer, which is
// created later, because admission reads and writes by the client.
func newAPISets(b *base, k *caches, s *stores, auditor *audit.Auditor, writer func() *writes.Writer) *apiSets {
	a := &apiSets{
		fields:  apply.New(k.catalog, time.Now),
		respond: responsewriters.Responder{Codec: k.codec, Media: negotiation.Media{CBOR: b.gates.Enabled(features.CBORServingAndStorage)}},
	}
	a.builder = apiset.Builder{Codec: k.codec, Cache: k.cache, Elsewhere: k.overrideClusters.caches(), Root: b.root, Fields: a.fields}
	all := a.builder.Set(k.catalog, 0)
	a.allKinds, a.kinds = apiset.NewLive(all), apiset.NewLive(all.Only(k.served))
	a.client = &internalclient.Client{Doer: &internalclient.Server{
		Kinds: a.allKinds, Cache: k.cache, Codec: k.codec, Writes: writer, Logger: b.log, Audit: auditor,
		Metrics: internalclient.NewMetrics(b.metrics), Traces: b.traces,
	}}
	if main, ok := s.store.(*etcd.Store); ok { // metrics of resources that are no longer served are removed
		main.KeepSeriesWhile(func() func(schema.GroupResource) bool { return a.allKinds.Current().ServesResource })
	}
	return a
}

// storedKind returns the served kind that stores a kind; nil if none is served.
func (a *apiSets) storedKind(gvk schema.GroupVersionKind) *registry.Kind {
	if r := a.kinds.Current().StoredKind(gvk); r != nil {
		return r.Kind
	}
	return nil
}

// family returns the versions in which a resource is served now.
func (a *apiSets) family(k *registry.Kind) []*apiset.Resource { return a.kinds.Current().Family(k) }
