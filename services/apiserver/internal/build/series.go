package build

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/storage/etcd"
)

// keepSeries has the metrics of etcd follow the resources that are served.
func (p *parts) keepSeries() {
	if s, ok := p.store.(*etcd.Store); ok {
		s.KeepSeriesWhile(func() func(schema.GroupResource) bool { return p.all.Current().ServesResource })
	}
}

// watchMetrics returns the metrics of watches, which follow the resources that are served.
func (p *parts) watchMetrics() *handlers.Metrics {
	m := handlers.NewMetrics(p.metrics)
	m.KeepWhileServed(p.kinds)
	return m
}
