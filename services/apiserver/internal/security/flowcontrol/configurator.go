package flowcontrol

import (
	"context"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/registry"
)

// SchemaStatusUpdater maintains the statuses of flow schemas, which report missing levels.
type SchemaStatusUpdater interface {
	SetLevel(name string, exists bool)
	PutSchema(*flowcontrolv1.FlowSchema)
	DropSchema(name string)
}

// Configurator configures a Controller and the statuses of flow schemas from the cached objects.
// Requests use the previous configuration until a change is applied.
type Configurator struct {
	// Levels and Schemas follow the objects while they run.
	Levels, Schemas *informer.Informer
	// Control is the configured controller. It is nil if flow control is off. It is set before the
	// informers run.
	Control    *Controller
	references SchemaStatusUpdater

	mu            sync.Mutex // before the locks of Control and references
	levelObjects  configObjects[*flowcontrolv1.PriorityLevelConfiguration]
	schemaObjects configObjects[*flowcontrolv1.FlowSchema]
	compiler      *Compiler
	loaded        bool // the compiler has all levels and schemas
	onChange      func(name string)
}

// NewConfigurator returns a Configurator. Its configuration is empty before its informers run.
func NewConfigurator(levels, schemas lister.CachedResource, references SchemaStatusUpdater) *Configurator {
	configurator := &Configurator{compiler: NewCompiler(), references: references, onChange: func(string) {}}
	configurator.levelObjects = configObjects[*flowcontrolv1.PriorityLevelConfiguration]{
		resource: levels,
		applied:  map[string]bool{},
		add: func(l *flowcontrolv1.PriorityLevelConfiguration) {
			configurator.onChange(l.Name)
			configurator.compiler.PutLevel(l)
			configurator.references.SetLevel(l.Name, true)
		},
		remove: func(name string) {
			configurator.compiler.DropLevel(name)
			configurator.references.SetLevel(name, false)
		},
	}
	configurator.Levels = informer.New(informer.Config{
		Store: levels.Store,
		Replace: func(_ context.Context, all []*objects.Entry, _ int64) {
			configurator.updateConfig(func() { configurator.levelObjects.replaceAll(all) })
		},
		Apply: func(_ context.Context, changes []watchcache.Event, _ int64) {
			configurator.updateConfig(func() { configurator.levelObjects.applyEvents(changes) })
		},
	})
	configurator.schemaObjects = configObjects[*flowcontrolv1.FlowSchema]{
		resource: schemas,
		applied:  map[string]bool{},
		add: func(s *flowcontrolv1.FlowSchema) {
			configurator.onChange(s.Name)
			configurator.compiler.PutSchema(s)
			configurator.references.PutSchema(s)
		},
		remove: func(name string) {
			configurator.compiler.DropSchema(name)
			configurator.references.DropSchema(name)
		},
	}
	// Schemas refer to levels, so the levels of their revision are applied first.
	configurator.Schemas = informer.New(informer.Config{
		Store: schemas.Store,
		Replace: func(ctx context.Context, all []*objects.Entry, revision int64) {
			if configurator.Levels.WaitFor(ctx, revision) != nil {
				return // the informer retries, unless the server is shutting down
			}
			configurator.updateConfig(func() {
				configurator.schemaObjects.replaceAll(all)
				configurator.loaded = true
			})
		},
		Apply: func(ctx context.Context, changes []watchcache.Event, revision int64) {
			_ = configurator.Levels.WaitFor(ctx, revision)
			configurator.updateConfig(func() { configurator.schemaObjects.applyEvents(changes) })
		},
	})
	return configurator
}

// OnChange sets a function that is called with the name of each level or schema before it is
// compiled.
func (c *Configurator) OnChange(put func(name string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onChange = put
}

// updateConfig changes the compiler and applies its configuration.
func (c *Configurator) updateConfig(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	if c.Control != nil && c.loaded {
		c.Control.SetConfig(c.compiler.Config())
	}
}

// WaitForRevision waits until the objects of a revision are applied, but at most configWaitTimeout.
func (c *Configurator) WaitForRevision(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, configWaitTimeout)
	defer cancel()
	_ = c.Schemas.WaitFor(ctx, revision)
}

// configWaitTimeout bounds the wait of WaitForRevision.
const configWaitTimeout = 2 * time.Second

// configObjects applies the changes of the cached objects of a kind with add and remove. An object
// that cannot be decoded keeps its previous state.
type configObjects[T registry.Object] struct {
	resource lister.CachedResource
	applied  map[string]bool // names that add was called with
	add      func(T)
	remove   func(name string)
}

// replaceAll replaces all objects.
func (o *configObjects[T]) replaceAll(entries []*objects.Entry) {
	exists := make(map[string]bool, len(entries))
	for _, e := range entries {
		exists[e.Name()] = true
		o.putObject(e)
	}
	for name := range o.applied {
		if !exists[name] {
			o.removeObject(name)
		}
	}
}

// applyEvents applies changes of objects.
func (o *configObjects[T]) applyEvents(changes []watchcache.Event) {
	for _, ev := range changes {
		if ev.Type == watchcache.Deleted {
			o.removeObject(ev.Entry.Name())
		} else {
			o.putObject(ev.Entry)
		}
	}
}

// removeObject removes an object, if it is known.
func (o *configObjects[T]) removeObject(name string) {
	if o.applied[name] {
		delete(o.applied, name)
		o.remove(name)
	}
}

// putObject adds or changes an object.
func (o *configObjects[T]) putObject(e *objects.Entry) {
	obj, err := o.resource.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return // reads of the object report it
	}
	if t, ok := obj.(T); ok {
		o.applied[e.Name()] = true
		o.add(t)
	}
}
