package builtin_test

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
)

// kindCases contains a file per kind: a minimal object, its created form, and the errors of invalid
// changes.
//
//go:embed testdata/kinds/*.yaml
var kindCases embed.FS

// kindCase is a file of testdata/kinds.
type kindCase struct {
	Kind string `json:"kind"`
	// Gates are feature gates in the form of the flag.
	Gates   string         `json:"gates"`
	Minimal map[string]any `json:"minimal"`
	// Created is the minimal object after creation.
	Created map[string]any `json:"created"`
	// Broken are invalid objects, Changes are invalid changes of the created object.
	Broken  []objectChange `json:"broken"`
	Changes []objectChange `json:"changes"`
	// Warned are objects whose creation causes warnings.
	Warned []objectChange `json:"warned"`
}

// objectChange is a change of an object with its expected errors or warnings.
type objectChange struct {
	// Set contains values by their paths, such as spec.ports[0].name. null removes a value. Live is
	// set in both the stored and the changed object.
	Set  map[string]any `json:"set"`
	Live map[string]any `json:"live"`
	// Long maps paths to lengths of generated texts, Many to numbers of generated map keys.
	Long map[string]int `json:"long"`
	Many map[string]int `json:"many"`
	// Subresource is the subresource of the change.
	Subresource string   `json:"sub"`
	Errors      []string `json:"errors"`
	Warnings    []string `json:"warnings"`
	// Becomes contains values of the object after the change by their paths. null means that there
	// is none.
	Becomes map[string]any `json:"becomes"`
}

// TestKindFollowsItsCases checks the rules of each kind with the cases of its file.
func TestKindFollowsItsCases(t *testing.T) {
	for name, kindCase := range readKindCases(t) {
		kind := kindsWith(t, kindCase.Gates)[kindCase.Kind]
		if kind == nil {
			t.Fatalf("%s: no kind %s", name, kindCase.Kind)
		}
		t.Run(name, func(t *testing.T) { kindCase.check(t, kind) })
	}
}

// kindsWith returns the kinds of a server with feature gates.
func kindsWith(t *testing.T, gates string) map[string]*registry.Kind {
	t.Helper()
	if gates == "" {
		return byName(t)
	}
	enabled := features.New()
	if err := enabled.Set(gates); err != nil {
		t.Fatal(err)
	}
	all, err := builtin.AllKinds(registry.Settings{Gates: enabled})
	if err != nil {
		t.Fatal(err)
	}
	return named(all)
}

// check checks the created object, and the errors and warnings of the cases.
func (c *kindCase) check(t *testing.T, kind *registry.Kind) {
	created, errs := createOf(kind, decode(t, kind, c.Minimal))
	if len(errs) > 0 {
		t.Fatalf("minimal object: got errors %q", errs)
	}
	if kind.Default != nil { // clients read the object with its defaults
		kind.Default(created)
	}
	got := toMap(t, created)
	delete(got["metadata"].(map[string]any), "uid")
	if s, ok := got["status"].(map[string]any); ok {
		delete(s, "lastPhaseTransitionTime")
	}
	if !reflect.DeepEqual(got, toMap(t, decode(t, kind, c.Created))) {
		t.Errorf("got created object\n%s\nwant\n%s", mustYAML(t, got), mustYAML(t, c.Created))
	}
	for i, change := range c.Broken {
		t.Run(fmt.Sprintf("broken %d", i), func(t *testing.T) {
			_, got := createOf(kind, decode(t, kind, change.applyTo(t, c.Minimal)))
			if !reflect.DeepEqual(got, change.Errors) || len(change.Errors) == 0 {
				t.Errorf("%s\ngot errors\n%s\nwant\n%s", mustYAML(t, change.Set), strings.Join(got, "\n"), strings.Join(change.Errors, "\n"))
			}
		})
	}
	for i, change := range c.Changes {
		t.Run(fmt.Sprintf("change %d", i), func(t *testing.T) {
			live := withFields(t, toMap(t, created), change.Live)
			changed := decode(t, kind, change.applyTo(t, live))
			got := changeOf(kind, changed, decode(t, kind, live), change.Subresource)
			if !reflect.DeepEqual(got, change.Errors) {
				t.Errorf("%s\ngot errors\n%s\nwant\n%s", mustYAML(t, change.Set), strings.Join(got, "\n"), strings.Join(change.Errors, "\n"))
			}
			for path, want := range change.Becomes {
				if got := valueAt(toMap(t, changed), steps(path)); !reflect.DeepEqual(got, want) {
					t.Errorf("%s\n%s: got %v, want %v", mustYAML(t, change.Set), path, got, want)
				}
			}
		})
	}
	for i, change := range c.Warned {
		t.Run(fmt.Sprintf("warned %d", i), func(t *testing.T) {
			var got []string
			obj := decode(t, kind, change.applyTo(t, c.Minimal))
			if kind.Create.EarlyWarnings != nil {
				got = kind.Create.EarlyWarnings(obj)
			}
			obj, errs := createOf(kind, obj)
			got = append(got, kind.Create.Warnings(obj)...)
			if len(errs) > 0 || !reflect.DeepEqual(got, change.Warnings) {
				t.Errorf("%s\ngot warnings\n%s\nwant\n%s\n%q",
					mustYAML(t, change.Set), strings.Join(got, "\n"), strings.Join(change.Warnings, "\n"), errs)
			}
		})
	}
}

// applyTo returns a copy of an object with the values of a case.
func (c *objectChange) applyTo(t *testing.T, obj map[string]any) map[string]any {
	set := map[string]any{}
	maps.Copy(set, c.Set)
	for path, n := range c.Long {
		set[path] = strings.Repeat("x", n)
	}
	for path, n := range c.Many {
		keys := map[string]any{}
		for i := range n {
			keys[fmt.Sprintf("k%d", i)] = "v"
		}
		set[path] = keys
	}
	return withFields(t, obj, set)
}

// createOf prepares an object for its creation. It returns the object and the texts of the errors.
func createOf(kind *registry.Kind, obj registry.Object) (registry.Object, []string) {
	if kind.Default != nil {
		kind.Default(obj)
	}
	obj.SetUID("uid")
	if kind.Update.Generation {
		obj.SetGeneration(1)
	}
	if kind.Create.Prepare != nil {
		kind.Create.Prepare(obj)
	}
	errs := meta.ValidateCreate(kind, obj)
	if kind.Create.Validate != nil {
		errs = append(errs, kind.Create.Validate(obj)...)
	}
	return obj, textsOf(errs)
}

// changeOf prepares an update of old or of its subresource, and returns the texts of the errors.
func changeOf(kind *registry.Kind, obj, old registry.Object, subresource string) []string {
	if kind.Default != nil {
		kind.Default(obj)
	}
	obj.SetResourceVersion("1")
	prepare, check, order := kind.Update.Prepare, kind.Update.Validate, kind.Update.Order
	if subresource != "" {
		s := kind.Subresource(subresource)
		prepare, check, order = s.Prepare, s.ValidateUpdate, s.Order
	}
	if prepare != nil {
		prepare(obj, old)
	}
	return textsOf(meta.ValidateUpdate(kind, order, obj, old, func(field.ErrorList) field.ErrorList {
		if check == nil {
			return nil
		}
		return check(obj, old)
	}))
}

// variablePart matches the variable parts of messages: lines after the first, the examples of format
// errors, and values with memory addresses.
var variablePart = regexp.MustCompile(`(?s)\n.*| \(e\.g\. .*|\w+\.\w+\{.*\(0x.*\}: `)

// longText matches a text generated for a case.
var longText = regexp.MustCompile(`x{100,}`)

// textsOf returns the texts of errors.
func textsOf(errs field.ErrorList) (out []string) {
	for _, e := range errs {
		text := e.Error()
		if strings.Contains(text, "\n") || strings.Contains(text, " (e.g. ") || strings.Contains(text, "(0x") {
			text = variablePart.ReplaceAllString(text, "") // slow
		}
		out = append(out, longText.ReplaceAllString(text, "x..."))
	}
	return out
}

// toMap returns an object as JSON values, without its type.
func toMap(t *testing.T, obj registry.Object) map[string]any {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	delete(out, "apiVersion")
	delete(out, "kind")
	return out
}

// mustYAML returns a value as YAML.
func mustYAML(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// withFields returns a copy of an object with values set.
func withFields(t *testing.T, obj map[string]any, set map[string]any) map[string]any {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(set)) {
		out = setAt(out, steps(path), set[path])
	}
	return out.(map[string]any)
}

var step = regexp.MustCompile(`[^.\[\]]+|\[([^\]]+)\]`)

// steps splits a path into names and indices.
func steps(path string) (out []string) {
	for _, m := range step.FindAllStringSubmatch(path, -1) {
		if m[1] != "" {
			out = append(out, m[1])
		} else {
			out = append(out, m[0])
		}
	}
	return out
}

// valueAt returns the value at a path, or nil.
func valueAt(in any, path []string) any {
	for _, p := range path {
		switch v := in.(type) {
		case map[string]any:
			in = v[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i >= len(v) {
				return nil
			}
			in = v[i]
		default:
			return nil
		}
	}
	return in
}

// setAt sets the value at a path of a tree, which it returns.
func setAt(in any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list, _ := in.([]any)
		for len(list) <= i {
			list = append(list, map[string]any{})
		}
		list[i] = setAt(list[i], path[1:], value)
		return list
	}
	m, _ := in.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	if len(path) == 1 && value == nil {
		delete(m, path[0])
		return m
	}
	m[path[0]] = setAt(m[path[0]], path[1:], value)
	return m
}
