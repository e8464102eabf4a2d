package crdinformer

import (
	"context"
	"hash/maphash"
	"iter"
	"log/slog"
	"maps"
	"slices"

	"binnacle/libs/sorted"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/json/jsontext"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// Config holds the dependencies of a Syncer.
type Config struct {
	// Definitions is the watch cache of definitions.
	Definitions *watchcache.Store
	// Decode decodes a stored definition.
	Decode func(stored []byte, revision int64) (*apiextensionsv1.CustomResourceDefinition, error)
	Maker  *kind.Maker
	// Definable reports whether definitions may define a resource. They may not define built-in
	// ones.
	Definable func(group, resource string) bool
	// Builder builds resources. Its watch cache has a store for each of them; see DefinitionReader.
	Builder apiset.Builder
	// Live holds the API sets to update. At first they contain only the built-in kinds. Only the
	// Syncer adds custom kinds.
	Live   []*apiset.Live
	Logger *slog.Logger
}

// Syncer adds the kinds of definitions to the API sets. The informer calls replace and apply in one
// goroutine. WaitForRevision and NewestSet are safe for concurrent use.
type Syncer struct {
	Config
	*informer.Informer
	// defined holds the definitions that will be served after the next swap, by key.
	defined map[string]*servedDefinition
	// definitions holds the definitions in defined. Observers receive copies of it.
	definitions sorted.Map[string, *kind.CRD]
	// pending holds the definitions that changed since the last swap, by key, as they are still
	// served. The value is nil for a key that is not served yet.
	pending map[string]*servedDefinition
	// unreadable holds the keys of definitions that cannot be read or served.
	unreadable map[string]bool
	// nextSlot is the next free slot for cached encodings. Slots are not reused, so that a
	// definition never serves an encoding of an older definition of its resource.
	nextSlot int
	// seed is the seed of the checksums kind.CRD.Sum.
	seed          maphash.Seed
	revisionReads revisionReads
	// beforeSwap and afterSwap hold the functions of OnSwapping and OnSwapped.
	beforeSwap, afterSwap []func(kind.CRDUpdate)
}

// servedDefinition is a definition with the resources that it defines.
type servedDefinition struct {
	definition *kind.CRD
	period     *servingPeriod
	apiset.Definition
}

// New returns a Syncer.
func New(config Config) *Syncer {
	syncer := &Syncer{
		Config:      config,
		defined:     map[string]*servedDefinition{},
		definitions: sorted.NewMap[string, *kind.CRD](),
		pending:     map[string]*servedDefinition{},
		unreadable:  map[string]bool{},
		seed:        maphash.MakeSeed(),
	}
	syncer.Informer = informer.New(informer.Config{Store: config.Definitions, Replace: syncer.replace, Apply: syncer.apply})
	return syncer
}

// OnSwapping registers a function to call with each update of the definitions before the API sets
// change. It must be called before Run.
func (s *Syncer) OnSwapping(observe func(kind.CRDUpdate)) {
	s.beforeSwap = append(s.beforeSwap, observe)
}

// OnSwapped registers a function to call with each update of the definitions after the API sets
// have changed. It must be called before Run.
func (s *Syncer) OnSwapped(observe func(kind.CRDUpdate)) { s.afterSwap = append(s.afterSwap, observe) }

// replace updates the API sets to all existing definitions. The informer calls it at the start and
// after the watch cache was reloaded.
func (s *Syncer) replace(_ context.Context, entries []*objects.Entry, revision int64) {
	exists := make(map[string]bool, len(entries))
	for _, e := range entries {
		exists[e.Key()] = true
		s.update(e)
	}
	for key := range s.defined {
		if !exists[key] {
			s.remove(key)
		}
	}
	maps.DeleteFunc(s.unreadable, func(key string, _ bool) bool { return !exists[key] })
	s.swap(revision)
}

// apply updates the API sets to changed definitions.
func (s *Syncer) apply(_ context.Context, changes []watchcache.Event, revision int64) {
	if len(changes) == 0 {
		return
	}
	for i := range changes {
		entry := changes[i].Entry
		if changes[i].Type == watchcache.Deleted {
			delete(s.unreadable, entry.Key())
			s.remove(entry.Key())
		} else {
			s.update(entry)
		}
	}
	s.swap(revision)
}

// conditionsPath selects the conditions of a stored definition.
var conditionsPath = jsontext.Compile(jsontext.Fields("status", "conditions"))

// update applies the new state of a definition to s.defined. The definition is served if it is
// established, valid, and accepted under its plural name.
func (s *Syncer) update(entry *objects.Entry) {
	revision := entry.Revision
	summary := entry.Summary()
	delete(s.unreadable, entry.Key())
	if conditions, err := conditionsPath.Find(summary, nil); err == nil && !isEstablished(conditions[0]) {
		s.remove(entry.Key())
		return
	}
	definition, err := kind.NewCRD(
		func() (*apiextensionsv1.CustomResourceDefinition, error) { return s.Decode(summary, revision) },
		func() (*apiextensionsv1.CustomResourceDefinition, error) { return s.Decode(entry.Stored(), revision) },
	)
	if err != nil {
		s.Logger.Error("definition of a custom resource cannot be read; its objects are not served", "key", entry.Key(), "error", err)
		s.unreadable[entry.Key()] = true
		s.remove(entry.Key())
		return
	}
	definition.Sum = entry.Sum(s.seed)
	if !definition.HasCondition(apiextensionsv1.Established) {
		s.remove(entry.Key())
		return
	}
	// The watch cache has its store under the plural name in the spec, so that name must be
	// accepted.
	names := &definition.Spec.Names
	if definition.Status.AcceptedNames.Plural != names.Plural || !s.Definable(definition.Spec.Group, names.Plural) {
		s.remove(entry.Key())
		return
	}
	if err := s.define(entry, definition); err != nil {
		s.Logger.Error("custom resource cannot be served", "definition", definition.Name, "error", err)
		s.unreadable[entry.Key()] = true
		s.remove(entry.Key())
	}
}

// define builds the resources of a definition and adds them to s.defined.
func (s *Syncer) define(entry *objects.Entry, definition *kind.CRD) error {
	key := entry.Key()

	// 1. Find the kinds of the definition and the watch cache of its objects.
	kinds := s.Maker.All(definition)
	if len(kinds) == 0 {
		s.remove(key)
		return nil
	}
	prefix := apiset.KeyPrefix(s.Builder.Root, kinds[0])
	store := s.Builder.Cache.Store(prefix)
	if store == nil { // the definition has been deleted meanwhile, and the event will follow
		s.remove(key)
		return nil
	}
	config, ok := s.Definitions.DefinedResource(entry)
	if !ok {
		s.remove(key)
		return nil
	}

	// 2. Build the resources.
	period := s.periodFor(key, entry, len(kinds))
	resources, err := s.Builder.Custom(kinds, store, period.slot)
	if err != nil {
		return err
	}
	for _, r := range resources {
		r.Preconditions = []storage.Precondition{{Key: key, CreateRevision: entry.CreateRevision}}
		r.Variant = config.Variant
		r.DefinitionContext = period.ctx
	}

	// 3. Serve them with the next swap.
	definition.Kinds = kinds
	s.markPending(key)
	s.defined[key] = &servedDefinition{
		definition: definition, period: period,
		Definition: apiset.Definition{Resource: kinds[0].GVR().GroupResource(), Versions: resources},
	}
	s.definitions.Set(key, definition)
	return nil
}

// remove removes a definition from s.defined.
func (s *Syncer) remove(key string) {
	if s.defined[key] == nil {
		return
	}
	s.markPending(key)
	delete(s.defined, key)
	s.definitions.Delete(key)
}

// markPending adds a key to s.pending with its served definition. It must be called before each
// change of s.defined.
func (s *Syncer) markPending(key string) {
	if _, ok := s.pending[key]; !ok {
		s.pending[key] = s.defined[key]
	}
}

// swap updates the API sets to s.defined, which reflects the definitions at a revision, and calls
// the observers. It visits only the definitions that have changed since the last swap.
func (s *Syncer) swap(revision int64) {
	// 1. Determine what has changed.
	var changed []apiset.Definition
	var changes []kind.CRDChange
	for _, key := range slices.Sorted(maps.Keys(s.pending)) {
		before := s.pending[key]
		current := s.defined[key]
		change := kind.CRDChange{}
		if before != nil {
			change.Old = before.definition
		}
		switch {
		case current != nil:
			change.New = current.definition
			changed = append(changed, current.Definition)
		case before != nil:
			changed = append(changed, apiset.Definition{Resource: before.Resource})
		default: // added and removed since the last swap
			continue
		}
		changes = append(changes, change)
	}

	// 2. Update the API sets between the calls of the observers.
	cancels := s.endedPeriods()
	clear(s.pending)
	update := kind.CRDUpdate{Changed: changes, All: values(s.definitions.Copy()), Complete: len(s.unreadable) == 0}
	for _, observe := range s.beforeSwap {
		observe(update)
	}
	for _, live := range s.Live {
		live.Swap(live.Current().WithDefinitions(changed, revision))
	}
	for _, observe := range s.afterSwap {
		observe(update)
	}

	// 3. End the watches of the previous definitions, whose clients then see the new ones.
	for _, cancel := range cancels {
		cancel()
	}
}

// values iterates over the values of a map, which must not change.
func values(m sorted.Map[string, *kind.CRD]) iter.Seq[*kind.CRD] {
	return func(yield func(*kind.CRD) bool) {
		m.Scan(func(_ string, d *kind.CRD) bool { return yield(d) })
	}
}
