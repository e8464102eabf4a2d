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

// readKindCases returns the case files by name.
func readKindCases(t *testing.T) map[string]*kindCase {
	t.Helper()
	files, err := kindCases.ReadDir("testdata/kinds")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*kindCase{}
	for _, dirEntry := range files {
		data, err := kindCases.ReadFile("testdata/kinds/" + dirEntry.Name())
		if err != nil {
			t.Fatal(err)
		}
		c := &kindCase{}
		if err := yaml.UnmarshalStrict(data, c); err != nil {
			t.Fatalf("%s: %v", dirEntry.Name(), err)
		}
		out[strings.TrimSuffix(dirEntry.Name(), ".yaml")] = c
	}
	return out
}

// kindsWithoutCases lists the kinds whose new or changed objects have no rules beyond metadata, with
// the reason.
var kindsWithoutCases = map[string]string{
	"changes ServiceAccount": "it has no rules",
}

// TestEveryKindHasCases checks that every kind, and every version with a Go type of its own, has a
// file with rejected new objects and rejected changes.
func TestEveryKindHasCases(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
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
	for name, kindCase := range readKindCases(t) {
		k := kinds[kindCase.Kind]
		if k == nil {
			t.Errorf("%s: no kind %s", name, kindCase.Kind)
			continue
		}
		has[form{k.GVK().GroupKind(), reflect.TypeOf(k.New())}] = true
		broken[k.GroupKind()] += len(kindCase.Broken)
		for _, change := range kindCase.Changes {
			changes[k.GroupKind()] += len(change.Errors)
		}
	}
	used := map[string]bool{}
	requireListed := func(caseType string, k *registry.Kind) {
		if kindsWithoutCases[caseType+" "+k.Kind] == "" {
			t.Errorf("%s: no %s, want one", nameOf(k), caseType)
		}
		used[caseType+" "+k.Kind] = true
	}
	for _, k := range all.Kinds() {
		if k.Virtual {
			continue
		}
		if !has[form{k.GVK().GroupKind(), reflect.TypeOf(k.New())}] {
			t.Errorf("%s: no file in testdata/kinds, want one", nameOf(k))
		}
		if broken[k.GroupKind()] == 0 {
			requireListed("broken", k)
		}
		if changes[k.GroupKind()] == 0 {
			requireListed("changes", k)
		}
	}
	for entry := range kindsWithoutCases {
		if !used[entry] {
			t.Errorf("%s is listed in kindsWithoutCases, but has cases", entry)
		}
	}
}

// immutableMessages lists parts of messages about immutable fields.
var immutableMessages = []string{
	"immutable", "may not change", "not be changed", "not be modified", "updates may not", "once set",
	"may not be removed", "may not be added", "cannot be decremented",
}

// fieldOf returns the field of an error about immutability, without indices, and the type of the
// error. It returns "" for other errors.
func fieldOf(err string) string {
	if !slices.ContainsFunc(immutableMessages, func(part string) bool { return strings.Contains(err, part) }) {
		return ""
	}
	path, rest, _ := strings.Cut(err, ": ")
	errorType, _, _ := strings.Cut(rest, ": ")
	return element.ReplaceAllString(path, "[]") + ": " + errorType
}

var element = regexp.MustCompile(`\[[^\]]*\]`)

// TestEveryImmutableFieldHasACase changes each field of each object in the case files at random. Each
// field that is immutable according to the errors must have a case.
func TestEveryImmutableFieldHasACase(t *testing.T) {
	tried, found := map[schema.GroupKind]map[string]bool{}, map[schema.GroupKind]map[string]string{}
	for _, kindCase := range readKindCases(t) {
		k := kindsWith(t, kindCase.Gates)[kindCase.Kind]
		kind := k.GroupKind()
		if tried[kind] == nil {
			tried[kind], found[kind] = map[string]bool{}, map[string]string{}
		}
		created, _ := createOf(k, decode(t, k, kindCase.Minimal))
		states := []registry.Object{created}
		for _, change := range append(slices.Clone(kindCase.Broken), kindCase.Changes...) {
			for _, err := range change.Errors {
				tried[kind][fieldOf(err)] = true
			}
			if len(change.Live) > 0 {
				states = append(states, decode(t, k, withFields(t, toMap(t, created), change.Live)))
			}
		}
		for _, old := range states {
			for seed := range int64(2) {
				eachField(reflect.ValueOf(old).Elem(), "", 2, func(path string, index []int) {
					obj := old.DeepCopyObject().(registry.Object)
					fillAt(reflect.ValueOf(obj).Elem(), index, filler(seed, 0.2).NumElements(1, 1).MaxDepth(5))
					for _, err := range changeOf(k, obj, old.DeepCopyObject().(registry.Object), "") {
						if place := fieldOf(err); place != "" {
							found[kind][place] = fmt.Sprintf("%s of %s", path, kindCase.Kind)
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

// eachField calls visit for the fields of a struct and below, with the first elements of lists.
// index is the path to the field. Metadata and status are skipped.
func eachField(value reflect.Value, path string, depth int, visit func(path string, index []int)) {
	var walk func(value reflect.Value, path string, index []int, depth int)
	walk = func(value reflect.Value, path string, index []int, depth int) {
		switch value.Kind() {
		case reflect.Pointer:
			if !value.IsNil() {
				walk(value.Elem(), path, index, depth)
			}
		case reflect.Slice:
			if value.Len() > 0 {
				visit(path+"[0]", append(slices.Clone(index), 0))
				walk(value.Index(0), path+"[0]", append(slices.Clone(index), 0), depth-1)
			}
		case reflect.Struct:
			if value.Type() == reflect.TypeFor[runtime.RawExtension]() {
				return
			}
			for i := range value.NumField() {
				structField := value.Type().Field(i)
				if !structField.IsExported() || path == "" && (structField.Name == "TypeMeta" || structField.Name == "ObjectMeta" || structField.Name == "Status") {
					continue
				}
				fieldPath, fieldIndex := path+"."+structField.Name, append(slices.Clone(index), i)
				visit(fieldPath, fieldIndex)
				if depth > 0 {
					walk(value.Field(i), fieldPath, fieldIndex, depth-1)
				}
			}
		}
	}
	walk(value, path, nil, depth)
}

// fillAt fills the field at an index of eachField with a random value.
func fillAt(value reflect.Value, index []int, filler *randfill.Filler) {
	for _, i := range index {
		for value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		if value.Kind() == reflect.Slice {
			value = value.Index(i)
		} else {
			value = value.Field(i)
		}
	}
	filler.Fill(value.Addr().Interface())
}
