package build

import (
	"context"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server"
)

// flowConfig configures flow control and the statuses of flow schemas from the cached objects.
// Requests use the previous configuration until a change is applied.
type flowConfig struct {
	levels, schemas *informer.Informer
	control         *flowcontrol.Controller // nil if flow control is off
	dangling        *bootstrap.Dangling

	mu       sync.Mutex // before the locks of control and dangling
	level    flowObjects[*flowcontrolv1.PriorityLevelConfiguration]
	schema   flowObjects[*flowcontrolv1.FlowSchema]
	compiler *flowcontrol.Compiler
	loaded   bool // the compiler has all levels and schemas
}

// newFlowConfig returns a configuration that is empty before its informers run.
func newFlowConfig(levels, schemas lister.Kind, dangling *bootstrap.Dangling) *flowConfig {
	f := &flowConfig{compiler: flowcontrol.NewCompiler(), dangling: dangling}
	f.level = flowObjects[*flowcontrolv1.PriorityLevelConfiguration]{
		kind: levels, known: map[string]bool{},
		put: func(l *flowcontrolv1.PriorityLevelConfiguration) {
			f.compiler.PutLevel(l)
			f.dangling.SetLevel(l.Name, true)
		},
		drop: func(name string) {
			f.compiler.DropLevel(name)
			f.dangling.SetLevel(name, false)
		},
	}
	f.levels = informer.New(informer.Config{
		Store: levels.Store,
		Replace: func(_ context.Context, objects []*watchcache.Entry, _ int64) {
			f.update(func() { f.level.replace(objects) })
		},
		Apply: func(_ context.Context, changes []watchcache.Event, _ int64) {
			f.update(func() { f.level.apply(changes) })
		},
	})
	f.schema = flowObjects[*flowcontrolv1.FlowSchema]{
		kind: schemas, known: map[string]bool{},
		put: func(s *flowcontrolv1.FlowSchema) {
			f.compiler.PutSchema(s)
			f.dangling.PutSchema(s)
		},
		drop: func(name string) {
			f.compiler.DropSchema(name)
			f.dangling.DropSchema(name)
		},
	}
	// Schemas refer to levels, so the levels of their revision are applied first.
	f.schemas = informer.New(informer.Config{
		Store: schemas.Store,
		Replace: func(ctx context.Context, objects []*watchcache.Entry, revision int64) {
			if f.levels.WaitFor(ctx, revision) != nil {
				return // the state is received again, or the server ends
			}
			f.update(func() {
				f.schema.replace(objects)
				f.loaded = true
			})
		},
		Apply: func(ctx context.Context, changes []watchcache.Event, revision int64) {
			_ = f.levels.WaitFor(ctx, revision)
			f.update(func() { f.schema.apply(changes) })
		},
	})
	return f
}

// update changes the compiler and applies its configuration.
func (f *flowConfig) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	if f.control != nil && f.loaded {
		f.control.SetConfig(f.compiler.Config())
	}
}

// settled waits until the objects of a revision are applied, at most flowSettleTime. After that, they
// take effect later.
func (f *flowConfig) settled(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, flowSettleTime)
	defer cancel()
	_ = f.schemas.WaitFor(ctx, revision)
}

const flowSettleTime = 2 * time.Second

// flowObjects passes objects of a kind on. An object that cannot be decoded keeps its previous state.
type flowObjects[T registry.Object] struct {
	kind  lister.Kind
	known map[string]bool // names that put was called with
	put   func(T)
	drop  func(name string)
}

func (o *flowObjects[T]) replace(entries []*watchcache.Entry) {
	exists := make(map[string]bool, len(entries))
	for _, e := range entries {
		exists[e.Name()] = true
		o.set(e)
	}
	for name := range o.known {
		if !exists[name] {
			o.remove(name)
		}
	}
}

func (o *flowObjects[T]) apply(changes []watchcache.Event) {
	for _, ev := range changes {
		if ev.Type == watchcache.Deleted {
			o.remove(ev.Entry.Name())
		} else {
			o.set(ev.Entry)
		}
	}
}

func (o *flowObjects[T]) remove(name string) {
	if o.known[name] {
		delete(o.known, name)
		o.drop(name)
	}
}

func (o *flowObjects[T]) set(e *watchcache.Entry) {
	obj, err := o.kind.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return // reads of the object report it
	}
	if t, ok := obj.(T); ok {
		o.known[e.Name()] = true
		o.put(t)
	}
}

func flowResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: name}
}

// newFlow creates flow control, unless it is disabled.
func newFlow(b *base, o *config.RequestOptions, k *caches, client *internalclient.Client) *flowConfig {
	kind := func(name string) lister.Kind {
		return k.lookup(flowcontrolv1.SchemeGroupVersion.WithResource(name))
	}
	f := newFlowConfig(kind("prioritylevelconfigurations"), kind("flowschemas"), bootstrap.NewDangling(client, b.log))
	b.life.whileServing("flow schemas", f.schemas.Run)
	b.life.whileServing("priority levels", f.levels.Run)
	b.life.whileServing("statuses of flow schemas", f.dangling.Run)
	seats := o.MaxInFlight + o.MaxMutatingInFlight
	if !o.PriorityAndFairness || seats == 0 {
		return f
	}
	f.control = flowcontrol.New(flowcontrol.Options{
		Seats: seats, IsExempt: server.Exempt,
		LoadConfig: func(ctx context.Context) {
			if k.cache.Ready() {
				f.settled(ctx, 0)
			}
		},
		MaxWait: 15 * time.Second, Metrics: flowcontrol.NewMetrics(b.metrics, o.MaxInFlight, o.MaxMutatingInFlight, time.Now),
	})
	b.life.inBackground("flow control", f.control.Run)
	return f
}
