package build

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/storage/etcd"
)

// pruneSeries removes metrics of etcd for resources that are no longer served.
func (p *parts) pruneSeries() {
	if s, ok := p.store.(*etcd.Store); ok {
		s.KeepSeriesWhile(func() func(schema.GroupResource) bool { return p.allKinds.Current().ServesResource })
	}
}

// watchMetrics returns the metrics of watches. Series of resources that are no longer served are
// removed.
func (p *parts) watchMetrics() *handlers.Metrics {
	m := handlers.NewMetrics(p.metrics)
	m.KeepWhileServed(p.kinds)
	return m
}
