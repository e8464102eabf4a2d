package apply

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/registry"
)

// Fields tracks field ownership for the kinds of a catalog.
type Fields struct {
	types    *mergeTypes
	setCache *fieldSetCache
	now      func() time.Time
	views    map[*registry.Kind]*view
}

// New returns the Fields of a catalog. now is the clock of entries.
func New(catalog *registry.Catalog, now func() time.Time) *Fields {
	fields := &Fields{setCache: newFieldSetCache(), now: now, views: map[*registry.Kind]*view{}}
	var roots []reflect.Type
	for _, kind := range catalog.Kinds() {
		if obj := kind.New(); !untypedObject(obj) {
			roots = append(roots, reflect.TypeOf(obj).Elem())
		}
		for _, s := range kind.Subresources {
			if s.New != nil {
				roots = append(roots, reflect.TypeOf(s.New()).Elem())
			}
		}
	}
	fields.types = newMergeTypes(roots)
	versions := map[string]map[string]*view{}
	for _, kind := range catalog.Kinds() {
		// Kinds of one group with one storage prefix are versions of each other. A kind that is not
		// stored has only one version.
		storageKey := kind.Group + "/" + kind.Stored.Prefix
		if kind.Virtual {
			storageKey = kind.GVK().String()
		}
		if versions[storageKey] == nil {
			versions[storageKey] = map[string]*view{}
		}
		fields.views[kind] = fields.add(kind, versions[storageKey])
	}
	return fields
}

// add creates the view of a kind and adds it to the views of the kind's versions, by apiVersion.
func (f *Fields) add(kind *registry.Kind, versions map[string]*view) *view {
	v := &view{fields: f, kind: kind, representation: representationOf(kind), versions: versions}
	v.typed = sync.OnceValue(v.mergeType)
	v.shape = sync.OnceValue(v.shapeOf)
	versions[kind.GroupVersion().String()] = v
	return v
}

// view is a kind in one version.
type view struct {
	fields         *Fields
	kind           *registry.Kind
	representation representation
	// versions holds the views of this kind by apiVersion.
	versions map[string]*view
	typed    func() typed.ParseableType
	shape    func() *valueShape
}

// inVersion returns the view of the same kind in another version, or nil if it is not served.
func (v *view) inVersion(apiVersion string) *view { return v.versions[apiVersion] }

// untypedObject reports whether an object has no Go type, but is a tree of values.
func untypedObject(o runtime.Object) bool { _, ok := o.(runtime.Unstructured); return ok }

func (v *view) goType() reflect.Type { return reflect.TypeOf(v.kind.New()).Elem() }

func (v *view) mergeType() typed.ParseableType {
	switch {
	case v.kind.MergeType != nil:
		return v.kind.MergeType()
	case untypedObject(v.kind.New()):
		return typed.DeducedParseableType
	}
	return v.fields.types.rulesFor(v.goType())
}

// Manager tracks field ownership of one kind for one path.
type Manager struct {
	*view
	gvk         schema.GroupVersionKind
	subresource string
	filter      fieldpath.Filter
}

// Manager returns the manager of a kind's own path, or of a subresource that is a view of the
// object.
func (f *Fields) Manager(k *registry.Kind, sub *registry.Subresource) *Manager {
	return newManager(f.views[k], k, sub)
}

// newManager returns the manager of a kind with a view, or of its subresource sub, which may be
// nil.
func newManager(v *view, kind *registry.Kind, sub *registry.Subresource) *Manager {
	manager := &Manager{view: v, gvk: kind.GVK()}
	if sub != nil {
		manager.subresource = sub.Name
	}
	manager.filter = filterOf(kind, sub)
	return manager
}

// Family holds kinds that are versions of each other and not in the catalog.
type Family struct{ views map[*registry.Kind]*view }

// Family returns a Family of kinds. Versions that are not served have no manager, but their field
// sets are kept.
func (f *Fields) Family(kinds []*registry.Kind) *Family {
	out := &Family{views: map[*registry.Kind]*view{}}
	versions := map[string]*view{}
	for _, k := range kinds {
		out.views[k] = f.add(k, versions)
		for _, u := range k.UnservedVersions {
			f.add(u, versions)
		}
	}
	return out
}

// Manager returns the manager of a kind of the family; see Fields.Manager.
func (f *Family) Manager(k *registry.Kind, sub *registry.Subresource) *Manager {
	return newManager(f.views[k], k, sub)
}

// ForOperation returns the manager of objects that are sent to a subresource that is an operation,
// and are not stored.
func (f *Fields) ForOperation(gvk schema.GroupVersionKind, make func() runtime.Object, sub string) *Manager {
	return f.Standalone(&registry.Kind{
		Names: registry.Names{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}, Virtual: true, New: make,
	}, sub)
}

// Standalone returns the manager of a subresource whose objects have a kind that is not in the
// catalog.
func (f *Fields) Standalone(kind *registry.Kind, subresource string) *Manager {
	return &Manager{view: f.add(kind, map[string]*view{}), gvk: kind.GVK(), subresource: subresource}
}

// filterOf returns a filter that removes from sets the fields that a path does not change, or nil.
func filterOf(k *registry.Kind, sub *registry.Subresource) fieldpath.Filter {
	resets := k.ResetFields(sub)
	if len(resets) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, p := range resets {
		set.Insert(pathOf(p))
	}
	return fieldpath.NewExcludeSetFilter(set)
}

func pathOf(dotted string) fieldpath.Path {
	var p fieldpath.Path
	for name := range strings.SplitSeq(dotted, ".") {
		p = append(p, fieldpath.PathElement{FieldName: &name})
	}
	return p
}

// maxCachedBytes is the maximum total size in bytes of encodings whose parsed sets are cached. A
// parsed set takes about ten times as much.
const maxCachedBytes = 256 << 10

// setKey is the encoding of a field set of a kind.
type setKey struct {
	view *view
	raw  string
}

// fieldSetCache caches recently parsed sets. Similar objects have equal sets. It is safe for
// concurrent use.
type fieldSetCache struct {
	mu    sync.Mutex
	byKey *simplelru.LRU[setKey, fieldSet]
	bytes int
}

func newFieldSetCache() *fieldSetCache {
	cache := &fieldSetCache{}
	const noLimit = 1 << 30 // limited by bytes instead
	cache.byKey, _ = simplelru.NewLRU(noLimit, func(key setKey, _ fieldSet) { cache.bytes -= len(key.raw) })
	return cache
}

func (k *fieldSetCache) get(key setKey) (fieldSet, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byKey.Get(key)
}

// add caches a decoded set, unless it is too large.
func (k *fieldSetCache) add(key setKey, fields fieldSet) {
	if len(key.raw) > maxCachedBytes/8 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byKey.Contains(key) {
		return
	}
	k.bytes += len(key.raw)
	k.byKey.Add(key, fields)
	for k.bytes > maxCachedBytes {
		k.byKey.RemoveOldest()
	}
}

// parseFieldSet parses a field set and reconciles it with the merge rules of the type, which may
// have changed since the set was written. The result is shared: callers must not change it.
func (v *view) parseFieldSet(raw []byte) (fieldSet, error) {
	if v == nil { // a version that is not served
		return parseSet(raw)
	}
	key := setKey{v, string(raw)}
	if set, ok := v.fields.setCache.get(key); ok {
		return set, nil
	}
	set, err := parseSet(raw)
	if err != nil {
		return fieldSet{}, err
	}
	t := v.typed()
	fitting, err := typed.ReconcileFieldSetWithSchema(set.Set, typed.AsTypedUnvalidated(nil, t.Schema, t.TypeRef))
	if err != nil {
		return fieldSet{}, err
	}
	if fitting != nil {
		set = fieldSet{Set: fitting}
		if set.raw, err = fitting.ToJSON(); err != nil {
			return fieldSet{}, err
		}
	}
	v.fields.setCache.add(key, set)
	return set, nil
}

// parseSet parses a field set. The result has the canonical encoding.
func parseSet(raw []byte) (fieldSet, error) {
	ordered, err := sortMembers(raw)
	if err != nil {
		return fieldSet{}, err
	}
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(ordered)); err != nil {
		return fieldSet{}, err
	}
	canonical, err := set.ToJSON()
	return fieldSet{Set: set, raw: canonical}, err
}

// minSorted is the number of commas from which sortMembers sorts a field set. In a smaller set, the
// quadratic insertions of the parser cost little.
const minSorted = 1000

// sortMembers returns the encoding of a field set with the members of each object in the order that
// the parser expects. For a member out of order, the parser moves all larger members of the object,
// which takes time quadratic in their number.
func sortMembers(raw []byte) ([]byte, error) {
	if bytes.Count(raw, []byte{','}) < minSorted {
		return raw, nil
	}
	start := jsontext.Space(raw, 0)
	if start == len(raw) || raw[start] != '{' {
		return raw, nil // the parser reports it
	}
	members, _, err := membersAt(raw, start)
	if err != nil {
		return nil, err
	}
	return appendMembers(make([]byte, 0, len(raw)), members), nil
}

// setMember is a member of an object of a field set.
type setMember struct {
	// element is the path element; nil for a member that is not sorted: the object itself ("."), an
	// element of an unknown type, or an invalid one.
	element *fieldpath.PathElement
	name    []byte // between the quotes
	value   []byte // nil for an object, whose members are sorted
	members []setMember
}

// compare orders members that are not sorted before the others.
func (m setMember) compare(other setMember) int {
	switch {
	case m.element != nil && other.element != nil:
		return m.element.Compare(*other.element)
	case m.element != nil:
		return 1
	case other.element != nil:
		return -1
	}
	return 0
}

// membersAt returns the sorted members of the object that starts at a position, and the position
// after the object. Repeated members keep their order, because the last one counts.
func membersAt(raw []byte, start int) (members []setMember, end int, err error) {
	end, err = jsontext.MembersAt(raw, start, func(name []byte, at int) (end int, more bool, err error) {
		member := setMember{name: name}
		if element, err := fieldpath.DeserializePathElement(jsontext.Name(name)); err == nil {
			member.element = &element
		}
		if member.element != nil && at < len(raw) && raw[at] == '{' {
			member.members, end, err = membersAt(raw, at)
		} else if end, err = jsontext.Skip(raw, at); err == nil {
			member.value = raw[at:end]
		}
		members = append(members, member)
		return end, true, err
	})
	slices.SortStableFunc(members, setMember.compare)
	return members, end, err
}

// appendMembers appends an object with the given members.
func appendMembers(dst []byte, members []setMember) []byte {
	dst = append(dst, '{')
	for i, member := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), member.name...), '"', ':')
		if member.value != nil {
			dst = append(dst, member.value...)
		} else {
			dst = appendMembers(dst, member.members)
		}
	}
	return append(dst, '}')
}
