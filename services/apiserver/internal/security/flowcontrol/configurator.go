package flowcontrol

import (
	"context"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/registry"
)

// References maintains the statuses of flow schemas, which report missing levels.
type References interface {
	SetLevel(name string, exists bool)
	PutSchema(*flowcontrolv1.FlowSchema)
	DropSchema(name string)
}

// Configurator configures a Controller and the statuses of flow schemas from the cached objects.
// Requests use the previous configuration until a change is applied.
type Configurator struct {
	// Levels and Schemas follow the objects while they run.
	Levels, Schemas *informer.Informer
	// Control is nil if flow control is off. It is set before the informers run.
	Control    *Controller
	references References

	mu       sync.Mutex // before the locks of Control and references
	level    objects[*flowcontrolv1.PriorityLevelConfiguration]
	schema   objects[*flowcontrolv1.FlowSchema]
	compiler *Compiler
	loaded   bool // the compiler has all levels and schemas
	onPut    func(name string)
}

// NewConfigurator returns a configuration that is empty before its informers run.
func NewConfigurator(levels, schemas lister.CachedResource, references References) *Configurator {
	f := &Configurator{compiler: NewCompiler(), references: references, onPut: func(string) {}}
	f.level = objects[*flowcontrolv1.PriorityLevelConfiguration]{
		kind: levels, known: map[string]bool{},
		put: func(l *flowcontrolv1.PriorityLevelConfiguration) {
			f.onPut(l.Name)
			f.compiler.PutLevel(l)
			f.references.SetLevel(l.Name, true)
		},
		drop: func(name string) {
			f.compiler.DropLevel(name)
			f.references.SetLevel(name, false)
		},
	}
	f.Levels = informer.New(informer.Config{
		Store: levels.Store,
		Replace: func(_ context.Context, all []*watchcache.Entry, _ int64) {
			f.update(func() { f.level.replace(all) })
		},
		Apply: func(_ context.Context, changes []watchcache.Event, _ int64) {
			f.update(func() { f.level.apply(changes) })
		},
	})
	f.schema = objects[*flowcontrolv1.FlowSchema]{
		kind: schemas, known: map[string]bool{},
		put: func(s *flowcontrolv1.FlowSchema) {
			f.onPut(s.Name)
			f.compiler.PutSchema(s)
			f.references.PutSchema(s)
		},
		drop: func(name string) {
			f.compiler.DropSchema(name)
			f.references.DropSchema(name)
		},
	}
	// Schemas refer to levels, so the levels of their revision are applied first.
	f.Schemas = informer.New(informer.Config{
		Store: schemas.Store,
		Replace: func(ctx context.Context, all []*watchcache.Entry, revision int64) {
			if f.Levels.WaitFor(ctx, revision) != nil {
				return // the state is received again, or the server ends
			}
			f.update(func() {
				f.schema.replace(all)
				f.loaded = true
			})
		},
		Apply: func(ctx context.Context, changes []watchcache.Event, revision int64) {
			_ = f.Levels.WaitFor(ctx, revision)
			f.update(func() { f.schema.apply(changes) })
		},
	})
	return f
}

// OnPut sets a function that is called with the name of each level or schema before it is compiled.
func (f *Configurator) OnPut(put func(name string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onPut = put
}

// update changes the compiler and applies its configuration.
func (f *Configurator) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	if f.Control != nil && f.loaded {
		f.Control.SetConfig(f.compiler.Config())
	}
}

// Settled waits until the objects of a revision are applied, at most settleTime. After that, they
// take effect later.
func (f *Configurator) Settled(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	_ = f.Schemas.WaitFor(ctx, revision)
}

// settleTime bounds the wait of Settled.
const settleTime = 2 * time.Second

// objects applies the changes of the cached objects of a kind with put and drop. An object that
// cannot be decoded keeps its previous state.
type objects[T registry.Object] struct {
	kind  lister.CachedResource
	known map[string]bool // names that put was called with
	put   func(T)
	drop  func(name string)
}

// replace replaces all objects.
func (o *objects[T]) replace(entries []*watchcache.Entry) {
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

// apply applies changes of objects.
func (o *objects[T]) apply(changes []watchcache.Event) {
	for _, ev := range changes {
		if ev.Type == watchcache.Deleted {
			o.remove(ev.Entry.Name())
		} else {
			o.set(ev.Entry)
		}
	}
}

// remove removes an object, if it is known.
func (o *objects[T]) remove(name string) {
	if o.known[name] {
		delete(o.known, name)
		o.drop(name)
	}
}

// set adds or changes an object.
func (o *objects[T]) set(e *watchcache.Entry) {
	obj, err := o.kind.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return // reads of the object report it
	}
	if t, ok := obj.(T); ok {
		o.known[e.Name()] = true
		o.put(t)
	}
}
