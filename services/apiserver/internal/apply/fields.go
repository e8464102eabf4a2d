package apply

import (
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/registry"
)

// Fields keeps field ownership of the kinds of a catalog.
type Fields struct {
	types *mergeTypes
	kept  *keptSets
	now   func() time.Time
	views map[*registry.Kind]*view
}

// New makes the managers of a catalog possible; now is the clock of entries.
func New(catalog *registry.Catalog, now func() time.Time) *Fields {
	f := &Fields{kept: newKeptSets(), now: now, views: map[*registry.Kind]*view{}}
	var roots []reflect.Type
	for _, k := range catalog.Kinds() {
		if obj := k.New(); !untypedObject(obj) {
			roots = append(roots, reflect.TypeOf(obj).Elem())
		}
		for _, s := range k.Subresources {
			if s.New != nil {
				roots = append(roots, reflect.TypeOf(s.New()).Elem())
			}
		}
	}
	f.types = newTypes(roots)
	versions := map[string]map[string]*view{}
	for _, k := range catalog.Kinds() {
		// Kinds of one group that are stored at one place are versions of each
		// other; what is not stored has one.
		place := k.Group + "/" + k.Stored.Prefix
		if k.Virtual {
			place = k.GVK().String()
		}
		if versions[place] == nil {
			versions[place] = map[string]*view{}
		}
		f.views[k] = f.add(k, versions[place])
	}
	return f
}

func (f *Fields) add(k *registry.Kind, versions map[string]*view) *view {
	v := &view{fields: f, kind: k, versions: versions}
	v.typed = sync.OnceValue(v.typeOf)
	v.shape = sync.OnceValue(v.shapeOf)
	versions[k.GroupVersion().String()] = v
	return v
}

// view is a kind in one version.
type view struct {
	fields *Fields
	kind   *registry.Kind
	// versions are this kind's views by apiVersion.
	versions map[string]*view
	typed    func() typed.ParseableType
	shape    func() *shape
}

// in is the view of the same kind in another version; nil when that is not
// served.
func (v *view) in(apiVersion string) *view { return v.versions[apiVersion] }

// untypedObject tells whether objects have no Go type of their own.
func untypedObject(o runtime.Object) bool { _, ok := o.(runtime.Unstructured); return ok }

func (v *view) goType() reflect.Type { return reflect.TypeOf(v.kind.New()).Elem() }

func (v *view) typeOf() typed.ParseableType {
	switch {
	case v.kind.MergeType != nil:
		return v.kind.MergeType()
	case untypedObject(v.kind.New()):
		return typed.DeducedParseableType
	}
	return v.fields.types.of(v.goType())
}

// Manager keeps field ownership of one kind through one path.
type Manager struct {
	*view
	gvk         schema.GroupVersionKind
	subresource string
	filter      fieldpath.Filter
}

// Manager makes the manager of a kind's own path, or of that of a sub-resource
// that shows the object itself.
func (f *Fields) Manager(k *registry.Kind, sub *registry.Subresource) *Manager {
	return newManager(f.views[k], k, sub)
}

func newManager(v *view, k *registry.Kind, sub *registry.Subresource) *Manager {
	m := &Manager{view: v, gvk: k.GVK()}
	if sub != nil {
		m.subresource = sub.Name
	}
	m.filter = filterOf(k, sub)
	return m
}

// Family are kinds that are versions of each other and not of the catalog.
type Family struct{ views map[*registry.Kind]*view }

// Family makes the managers of such kinds possible. Versions that are not served have no manager,
// but sets of fields in them are kept.
func (f *Fields) Family(kinds []*registry.Kind) *Family {
	out := &Family{views: map[*registry.Kind]*view{}}
	versions := map[string]*view{}
	for _, k := range kinds {
		out.views[k] = f.add(k, versions)
		if k.Document != nil {
			for _, u := range k.Document.Unserved {
				f.add(u, versions)
			}
		}
	}
	return out
}

// Manager is that of one of them, as Fields.Manager.
func (f *Family) Manager(k *registry.Kind, sub *registry.Subresource) *Manager {
	return newManager(f.views[k], k, sub)
}

// Sent makes the manager of what is sent to a sub-resource that is an operation, and
// that is not stored.
func (f *Fields) Sent(gvk schema.GroupVersionKind, make func() runtime.Object, sub string) *Manager {
	return f.Apart(&registry.Kind{
		Names: registry.Names{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}, Virtual: true, New: make,
	}, sub)
}

// Apart makes the manager of a sub-resource whose objects are of a kind of
// their own, which is not of the catalog.
func (f *Fields) Apart(kind *registry.Kind, subresource string) *Manager {
	return &Manager{view: f.add(kind, map[string]*view{}), gvk: kind.GVK(), subresource: subresource}
}

// filterOf leaves out of sets what a path does not change; nil leaves all.
func filterOf(k *registry.Kind, sub *registry.Subresource) fieldpath.Filter {
	if sub != nil && len(sub.Owns) > 0 {
		var matchers []*fieldpath.SetMatcher
		for _, p := range sub.Owns {
			matchers = append(matchers, matcherOf(p))
		}
		return fieldpath.NewIncludeMatcherFilter(matchers...)
	}
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

// pathOf reads a dotted path of field names.
func pathOf(dotted string) fieldpath.Path {
	var p fieldpath.Path
	for name := range strings.SplitSeq(dotted, ".") {
		p = append(p, fieldpath.PathElement{FieldName: &name})
	}
	return p
}

// matcherOf reads a dotted path in which * stands for any element.
func matcherOf(dotted string) *fieldpath.SetMatcher {
	var parts []any
	for name := range strings.SplitSeq(dotted, ".") {
		if name == "*" {
			parts = append(parts, fieldpath.MatchAnyPathElement())
			continue
		}
		parts = append(parts, name)
	}
	m, err := fieldpath.PrefixMatcher(parts...)
	if err != nil { // only for parts that are neither names nor elements
		panic(err)
	}
	return m
}
