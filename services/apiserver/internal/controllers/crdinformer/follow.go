package crdinformer

import (
	"context"
	"hash/maphash"
	"iter"
	"log/slog"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/json/jsontext"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// Config holds the dependencies of a Server.
type Config struct {
	// Definitions is the watch cache of definitions.
	Definitions *watchcache.Store
	// Decode decodes a stored definition.
	Decode func(stored []byte, revision int64) (*apiextensionsv1.CustomResourceDefinition, error)
	Maker  *kind.Maker
	// Definable reports whether definitions may define a resource.
	Definable func(group, resource string) bool
	// Builder builds resources. Its cache has a store for each of them (Defines).
	Builder apiset.Builder
	// Live are the served sets of the built-in kinds. Only the follower adds custom kinds to them.
	Live   []*apiset.Live
	Logger *slog.Logger
}

// Syncer serves the kinds of definitions. The informer calls it. The exported methods are safe for
// concurrent use.
type Syncer struct {
	Config
	*informer.Informer
	defined map[string]*defined // by key
	// definitions holds their definitions. Observers receive copies of it.
	definitions *btree.Map[string, *kind.CRD]
	// pending holds the keys that differ from the newest set, with their definitions in that set.
	pending map[string]*defined
	// unreadable holds the keys of definitions that cannot be read or served.
	unreadable map[string]bool
	// nextSlot is the next free slot for cached encodings. Slots are not reused, so that a
	// definition never serves an encoding of an older definition of its resource.
	nextSlot int
	// seed is the seed of the definitions' sums.
	seed          maphash.Seed
	revisionReads revisionReads
	// beforeSwap and afterSwap are called with each set before and after it is served.
	beforeSwap, afterSwap []func(kind.CRDUpdate)
}

// defined is a served definition.
type defined struct {
	definition *kind.CRD
	term       *term
	apiset.Defined
}

// New returns a Syncer.
func New(c Config) *Syncer {
	f := &Syncer{
		Config: c, defined: map[string]*defined{}, definitions: &btree.Map[string, *kind.CRD]{}, pending: map[string]*defined{}, unreadable: map[string]bool{},
		seed: maphash.MakeSeed(),
	}
	f.Informer = informer.New(informer.Config{Store: c.Definitions, Replace: f.replace, Apply: f.apply})
	return f
}

// OnSwapping registers a function that is called with each new set of definitions before the set is
// served. It must be called before Run.
func (f *Syncer) OnSwapping(observe func(kind.CRDUpdate)) {
	f.beforeSwap = append(f.beforeSwap, observe)
}

// OnSwapped is OnSwapping for calls after the set is served.
func (f *Syncer) OnSwapped(observe func(kind.CRDUpdate)) { f.afterSwap = append(f.afterSwap, observe) }

// replace serves all definitions.
func (f *Syncer) replace(_ context.Context, entries []*watchcache.Entry, revision int64) {
	exists := make(map[string]bool, len(entries))
	for _, e := range entries {
		exists[e.Key()] = true
		f.update(e)
	}
	for key := range f.defined {
		if !exists[key] {
			f.remove(key)
		}
	}
	maps.DeleteFunc(f.unreadable, func(key string, _ bool) bool { return !exists[key] })
	f.swap(revision)
}

// apply serves changed definitions.
func (f *Syncer) apply(_ context.Context, changes []watchcache.Event, revision int64) {
	if len(changes) == 0 {
		return
	}
	for i := range changes {
		e := changes[i].Entry
		if changes[i].Type == watchcache.Deleted {
			delete(f.unreadable, e.Key())
			f.remove(e.Key())
		} else {
			f.update(e)
		}
	}
	f.swap(revision)
}

// conditionsPath selects the conditions of a stored definition.
var conditionsPath = jsontext.Compile(jsontext.Fields("status", "conditions"))

// update applies the new state of a definition.
func (f *Syncer) update(e *watchcache.Entry) {
	revision := e.Revision
	outline := e.Outline()
	delete(f.unreadable, e.Key())
	if conditions, err := conditionsPath.Find(outline, nil); err == nil && !established(conditions[0]) {
		f.remove(e.Key())
		return
	}
	d, err := kind.NewCRD(
		func() (*apiextensionsv1.CustomResourceDefinition, error) { return f.Decode(outline, revision) },
		func() (*apiextensionsv1.CustomResourceDefinition, error) { return f.Decode(e.Stored(), revision) },
	)
	if err != nil {
		f.Logger.Error("definition of a custom resource cannot be read; its objects are not served", "key", e.Key(), "error", err)
		f.unreadable[e.Key()] = true
		f.remove(e.Key())
		return
	}
	d.Sum = e.Sum(f.seed)
	if !d.HasCondition(apiextensionsv1.Established) {
		f.remove(e.Key())
		return
	}
	// The store is found by the accepted plural name, which must be the wanted one.
	if names := &d.Spec.Names; d.Status.AcceptedNames.Plural != names.Plural || !f.Definable(d.Spec.Group, names.Plural) {
		f.remove(e.Key())
		return
	}
	if err := f.define(e, d); err != nil {
		f.Logger.Error("custom resource cannot be served", "definition", d.Name, "error", err)
		f.unreadable[e.Key()] = true
		f.remove(e.Key())
	}
}

// define builds the resources of a definition.
func (f *Syncer) define(e *watchcache.Entry, d *kind.CRD) error {
	key := e.Key()
	kinds := f.Maker.All(d)
	if len(kinds) == 0 {
		f.remove(key)
		return nil
	}
	prefix := apiset.KeyPrefix(f.Builder.Root, kinds[0])
	store := f.Builder.Cache.Store(prefix)
	if store == nil { // the cache is ahead: the definition is gone, and an event will follow
		f.remove(key)
		return nil
	}
	is, ok := f.Definitions.Defines(e)
	if !ok {
		f.remove(key)
		return nil
	}
	t := f.term(key, e, len(kinds))
	resources, err := f.Builder.Custom(kinds, store, t.slot)
	if err != nil {
		return err
	}
	for _, r := range resources {
		r.While = []storage.Precondition{{Key: key, CreateRevision: e.CreateRevision}}
		r.Variant = is.Variant
		r.Life = t.ctx
	}
	d.Kinds = kinds
	f.markPending(key)
	f.defined[key] = &defined{d, t, apiset.Defined{Resource: kinds[0].GVR().GroupResource(), Versions: resources}}
	f.definitions.Set(key, d)
	return nil
}

// remove removes a definition from the set.
func (f *Syncer) remove(key string) {
	if f.defined[key] == nil {
		return
	}
	f.markPending(key)
	delete(f.defined, key)
	f.definitions.Delete(key)
}

// markPending records the definition in the newest set before its first change.
func (f *Syncer) markPending(key string) {
	if _, ok := f.pending[key]; !ok {
		f.pending[key] = f.defined[key]
	}
}

// swap serves the definitions as of a revision. It visits only changed definitions.
func (f *Syncer) swap(revision int64) {
	var changed []apiset.Defined
	var changes []kind.CRDChange
	for _, key := range slices.Sorted(maps.Keys(f.pending)) {
		was := f.pending[key]
		is := f.defined[key]
		c := kind.CRDChange{}
		if was != nil {
			c.Before = was.definition
		}
		switch {
		case is != nil:
			c.Now = is.definition
			changed = append(changed, is.Defined)
		case was != nil:
			changed = append(changed, apiset.Defined{Resource: was.Resource})
		default: // added and removed since the last set
			continue
		}
		changes = append(changes, c)
	}
	ended := f.endedTerms()
	clear(f.pending)
	update := kind.CRDUpdate{Changed: changes, All: values(f.definitions.Copy()), Complete: len(f.unreadable) == 0}
	for _, observe := range f.beforeSwap {
		observe(update)
	}
	for _, live := range f.Live {
		live.Swap(live.Current().With(changed, revision))
	}
	for _, observe := range f.afterSwap {
		observe(update)
	}
	for _, cancel := range ended {
		cancel()
	}
}

// values returns the values of a map that no longer changes.
func values(m *btree.Map[string, *kind.CRD]) iter.Seq[*kind.CRD] {
	return func(yield func(*kind.CRD) bool) {
		m.Scan(func(_ string, d *kind.CRD) bool { return yield(d) })
	}
}
