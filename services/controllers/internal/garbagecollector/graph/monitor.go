package graph

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"binnacle/libs/reflector"
	"binnacle/services/controllers/internal/resources"
)

// pageSize is the number of objects in a page of a list. One page is in memory at a time.
const pageSize = 500

// monitor passes the objects of one resource to the graph. It is a reflector.Sink.
type monitor struct {
	*reflector.Reflector
	graph    *Graph
	resource *resources.Resource
	cancel   context.CancelFunc
	epoch    uint32 // of the current list
}

func newMonitor(g *Graph, client metadata.Getter, resource *resources.Resource, log *slog.Logger, cancel context.CancelFunc) *monitor {
	m := &monitor{graph: g, resource: resource, cancel: cancel}
	m.Reflector = reflector.New(reflector.Config{
		Resource: resource.GroupVersionResource.String(), Sink: m, PageSize: pageSize,
		List:     func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		Watch:    func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return client.Watch(ctx, o) },
		MinRetry: 800 * time.Millisecond, MaxRetry: 30 * time.Second, Log: log, Level: slog.LevelDebug,
	})
	return m
}

// StartList implements reflector.Sink.
func (m *monitor) StartList() { m.epoch = m.graph.StartList() }

// AddListed implements reflector.Sink.
func (m *monitor) AddListed(o metav1.Object) { m.Set(o) }

// EndList implements reflector.Sink. It removes objects that are gone.
func (m *monitor) EndList(string) { m.graph.Sweep(m.resource, m.epoch) }

// Set implements reflector.Sink.
func (m *monitor) Set(o metav1.Object) {
	if p, ok := o.(*metav1.PartialObjectMetadata); ok { // the metadata client returns nothing else
		m.graph.Observe(m.resource, p)
	}
}

// Remove implements reflector.Sink.
func (m *monitor) Remove(o metav1.Object) {
	if p, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.graph.Remove(m.resource, p)
	}
}

// Advance implements reflector.Sink.
func (m *monitor) Advance(string) {}
