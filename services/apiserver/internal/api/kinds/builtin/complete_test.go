package builtin_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// readKindCases returns the case files by their names.
func readKindCases(t *testing.T) map[string]*kindCase {
	t.Helper()
	files, err := kindCases.ReadDir("testdata/kinds")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*kindCase{}
	for _, f := range files {
		text, err := kindCases.ReadFile("testdata/kinds/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		c := &kindCase{}
		if err := yaml.UnmarshalStrict(text, c); err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		out[strings.TrimSuffix(f.Name(), ".yaml")] = c
	}
	return out
}

// without are the kinds that nothing is wrong with beyond their metadata, as new
// objects or as changed ones, and why.
var without = map[string]string{
	"changes ServiceAccount": "it has no rules",
}

// Every kind has a file with what is refused of new objects and of changed ones; so has
// every version that is of a Go type of its own.
func TestEveryKindHasCases(t *testing.T) {
	all, err := builtin.Everything(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	type form struct {
		kind schema.GroupKind
		typ  reflect.Type
	}
	has := map[form]bool{}
	broken, changes := map[schema.GroupKind]int{}, map[schema.GroupKind]int{}
	kinds := named(all)
	for name, c := range readKindCases(t) {
		k := kinds[c.Kind]
		if k == nil {
			t.Errorf("%s: no kind %s", name, c.Kind)
			continue
		}
		has[form{k.GVK().GroupKind(), reflect.TypeOf(k.New())}] = true
		broken[k.GroupKind()] += len(c.Broken)
		for _, b := range c.Changes {
			changes[k.GroupKind()] += len(b.Errors)
		}
	}
	used := map[string]bool{}
	lacks := func(what string, k *registry.Kind) {
		if without[what+" "+k.Kind] == "" {
			t.Errorf("%s has no %s", nameOf(k), what)
		}
		used[what+" "+k.Kind] = true
	}
	for _, k := range all.Kinds() {
		if k.Virtual {
			continue
		}
		if !has[form{k.GVK().GroupKind(), reflect.TypeOf(k.New())}] {
			t.Errorf("%s has no file of its own in testdata/kinds", nameOf(k))
		}
		if broken[k.GroupKind()] == 0 {
			lacks("broken", k)
		}
		if changes[k.GroupKind()] == 0 {
			lacks("changes", k)
		}
	}
	for what := range without {
		if !used[what] {
			t.Errorf("without %s stands on the list in vain", what)
		}
	}
}

// fixed are the messages of what must not change.
var fixed = regexp.MustCompile(`immutable|may not change|not be changed|not be modified|updates may not|once set|may not be (removed|added)|cannot be decremented`)

// placeOf an error that says that something must not change: its field, whatever the
// element of a list, and the sort of the error; empty for other errors.
func placeOf(err string) string {
	if !fixed.MatchString(err) {
		return ""
	}
	path, rest, _ := strings.Cut(err, ": ")
	sort, _, _ := strings.Cut(rest, ": ")
	return element.ReplaceAllString(path, "[]") + ": " + sort
}

var element = regexp.MustCompile(`\[[^\]]*\]`)

// Whatever must not change of the objects in the case files is among their cases: each
// field of each object is changed at random, and what is refused for that has to be
// refused in a case as well.
func TestEveryFixedFieldHasACase(t *testing.T) {
	tried, found := map[schema.GroupKind]map[string]bool{}, map[schema.GroupKind]map[string]string{}
	for _, c := range readKindCases(t) {
		k := kindsWith(t, c.Gates)[c.Kind]
		kind := k.GroupKind()
		if tried[kind] == nil {
			tried[kind], found[kind] = map[string]bool{}, map[string]string{}
		}
		created, _ := createOf(k, decode(t, k, c.Minimal))
		states := []registry.Object{created}
		for _, b := range append(slices.Clone(c.Broken), c.Changes...) {
			for _, err := range b.Errors {
				tried[kind][placeOf(err)] = true
			}
			if len(b.Live) > 0 {
				states = append(states, decode(t, k, with(t, plain(t, created), b.Live)))
			}
		}
		for _, old := range states {
			for seed := range int64(2) {
				eachField(reflect.ValueOf(old).Elem(), "", 2, func(path string, index []int) {
					obj := old.DeepCopyObject().(registry.Object)
					fillAt(reflect.ValueOf(obj).Elem(), index, filler(seed, 0.2).NumElements(1, 1).MaxDepth(5))
					for _, err := range changeOf(k, obj, old.DeepCopyObject().(registry.Object), "") {
						if place := placeOf(err); place != "" {
							found[kind][place] = fmt.Sprintf("%s of %s", path, c.Kind)
						}
					}
				})
			}
		}
	}
	for kind, places := range found {
		for _, place := range slices.Sorted(maps.Keys(places)) {
			if !tried[kind][place] {
				t.Errorf("%s: no case for %q, which a change of %s finds", kind, place, places[place])
			}
		}
	}
}

// eachField calls visit with the fields of a struct below it, with the first elements
// of lists, by way of what is set; index is the way there. Metadata and status are
// left out.
func eachField(v reflect.Value, path string, depth int, visit func(path string, index []int)) {
	var walk func(v reflect.Value, path string, index []int, depth int)
	walk = func(v reflect.Value, path string, index []int, depth int) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem(), path, index, depth)
			}
		case reflect.Slice:
			if v.Len() > 0 {
				visit(path+"[0]", append(slices.Clone(index), 0))
				walk(v.Index(0), path+"[0]", append(slices.Clone(index), 0), depth-1)
			}
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[runtime.RawExtension]() {
				return
			}
			for i := range v.NumField() {
				f := v.Type().Field(i)
				if !f.IsExported() || path == "" && (f.Name == "TypeMeta" || f.Name == "ObjectMeta" || f.Name == "Status") {
					continue
				}
				at, way := path+"."+f.Name, append(slices.Clone(index), i)
				visit(at, way)
				if depth > 0 {
					walk(v.Field(i), at, way, depth-1)
				}
			}
		}
	}
	walk(v, path, nil, depth)
}

// fillAt fills what stands at a way of eachField at random.
func fillAt(v reflect.Value, index []int, f *randfill.Filler) {
	for _, i := range index {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() == reflect.Slice {
			v = v.Index(i)
		} else {
			v = v.Field(i)
		}
	}
	f.Fill(v.Addr().Interface())
}
