package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
)

// kind is a served resource with the data that the generator needs.
type kind struct {
	group, version, resource, kind string
	namespaced, custom             bool
	verbs                          []string
	subresources                   []subresource
	schema                         map[string]any
	// bases are valid objects.
	bases []map[string]any
	// faults make the base invalid. changes are valid changes for an update.
	faults, changes []faults.Change
}

// subresource is a subresource of a kind.
type subresource struct {
	name, kind, group, version string
	verbs                      []string
}

func (k *kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}
	return k.group + "/" + k.version
}

func (k *kind) prefix() string {
	if k.group == "" {
		return "/api/" + k.version
	}
	return "/apis/" + k.group + "/" + k.version
}

// collection returns the path of the collection.
func (k *kind) collection() string {
	if k.namespaced {
		return k.prefix() + "/namespaces/{ns}/" + k.resource
	}
	return k.prefix() + "/" + k.resource
}

func (k *kind) has(verb string) bool { return slices.Contains(k.verbs, verb) }

// influential lists resources whose objects affect requests for other objects.
var influential = []string{
	"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
	"apiservices", "flowschemas", "prioritylevelconfigurations", "priorityclasses", "servicecidrs", "customresourcedefinitions", "storageclasses",
	"ingressclasses",
}

func (k *kind) influential() bool { return slices.Contains(influential, k.resource) }

// loadKinds returns the kinds that a server serves.
func loadKinds(s *comparison.Server) ([]*kind, error) {
	swagger, err := s.Fetch("/openapi/v2")
	if err != nil {
		return nil, err
	}
	definitions, _ := comparison.Lookup(swagger, "definitions").(map[string]any)
	schemas := map[string]map[string]any{}
	for name := range definitions {
		d := definitions[name].(map[string]any)
		ids, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, id := range ids {
			schemas[fmt.Sprintf("%v/%v/%v", comparison.Lookup(id, "group"), comparison.Lookup(id, "version"), comparison.Lookup(id, "kind"))] = d
		}
	}
	paths := []string{"/api/v1"}
	groups, err := s.Fetch("/apis")
	if err != nil {
		return nil, err
	}
	for _, g := range comparison.Lookup(groups, "groups").([]any) {
		for _, v := range comparison.Lookup(g, "versions").([]any) {
			paths = append(paths, fmt.Sprintf("/apis/%v", comparison.Lookup(v, "groupVersion")))
		}
	}
	var kinds []*kind
	for _, path := range paths {
		list, err := s.Fetch(path)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kindsOf(list, schemas, definitions)...)
	}
	return kinds, nil
}

func kindsOf(list any, schemas map[string]map[string]any, definitions map[string]any) []*kind {
	group, version, grouped := strings.Cut(comparison.Lookup(list, "groupVersion").(string), "/")
	if !grouped {
		group, version = "", group
	}
	byName := map[string]*kind{}
	var kinds []*kind
	for _, r := range comparison.Lookup(list, "resources").([]any) {
		name, _ := comparison.Lookup(r, "name").(string)
		var verbs []string
		for _, v := range comparison.Lookup(r, "verbs").([]any) {
			verbs = append(verbs, v.(string))
		}
		kindName, _ := comparison.Lookup(r, "kind").(string)
		parent, sub, isSub := strings.Cut(name, "/")
		if isSub {
			if k := byName[parent]; k != nil {
				g, _ := comparison.Lookup(r, "group").(string)
				v, _ := comparison.Lookup(r, "version").(string)
				if v == "" {
					g, v = group, version
				}
				k.subresources = append(k.subresources, subresource{name: sub, kind: kindName, group: g, version: v, verbs: verbs})
			}
			continue
		}
		k := &kind{group: group, version: version, resource: name, kind: kindName, namespaced: comparison.Lookup(r, "namespaced") == true, verbs: verbs}
		k.custom = strings.HasSuffix(group, customGroup)
		if schema := schemas[group+"/"+version+"/"+kindName]; schema != nil {
			k.schema = resolve(schema, definitions, 0)
		}
		byName[name] = k
		kinds = append(kinds, k)
	}
	return kinds
}

// resolve returns a schema with its references replaced.
func resolve(schema map[string]any, definitions map[string]any, depth int) map[string]any {
	if ref, ok := schema["$ref"].(string); ok {
		target, _ := definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
		if target == nil || depth > faults.MaxDepth {
			return map[string]any{}
		}
		return resolve(target, definitions, depth+1)
	}
	out := map[string]any{}
	for k, v := range schema {
		switch t := v.(type) {
		case map[string]any:
			if k == "properties" {
				properties := map[string]any{}
				for name, p := range t {
					properties[name] = resolve(p.(map[string]any), definitions, depth+1)
				}
				out[k] = properties
				continue
			}
			out[k] = resolve(t, definitions, depth+1)
		default:
			if k != "description" {
				out[k] = v
			}
		}
	}
	return out
}

// readBases adds valid objects, faults and changes from the folders of test data.
func readBases(kinds []*kind, kindsDir, casesDir string) error {
	byName := map[string]*kind{}
	byKind := map[string]*kind{}
	for _, k := range kinds {
		byName[k.apiVersion()+"/"+k.resource] = k
		byKind[k.apiVersion()+"/"+k.kind] = k
	}
	files, err := filepath.Glob(filepath.Join(kindsDir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := readKindFile(f, byName); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	cases, err := loadGolden(casesDir)
	if err != nil {
		return err
	}
	for _, c := range cases {
		for i, s := range c.Steps {
			if s.JSON == nil || !strings.HasPrefix(s.Request, "POST ") || c.want[i].Status != http.StatusCreated {
				continue
			}
			object, ok := comparison.RoundTrip(s.JSON).(map[string]any)
			if !ok {
				continue
			}
			k := byKind[fmt.Sprintf("%v/%v", object["apiVersion"], object["kind"])]
			if k != nil && savedVariables.FindString(strings.ReplaceAll(comparison.JSONText(object), "{ns}", "")) == "" {
				k.bases = append(k.bases, object)
			}
		}
	}
	for _, k := range kinds {
		for _, b := range k.bases {
			b["apiVersion"], b["kind"] = k.apiVersion(), k.kind
		}
	}
	return nil
}

// omitAggregation leaves aggregated cluster roles out, which the product fills without a controller
// manager.
func omitAggregation(kinds []*kind) {
	for _, k := range kinds {
		if k.resource != "clusterroles" {
			continue
		}
		delete(lookupMap(k.schema, "properties"), "aggregationRule")
		k.bases = slices.DeleteFunc(k.bases, func(b map[string]any) bool { return b["aggregationRule"] != nil })
		aggregates := func(c faults.Change) bool { return strings.Contains(comparison.JSONText(c.Set), "aggregationRule") }
		k.faults, k.changes = slices.DeleteFunc(k.faults, aggregates), slices.DeleteFunc(k.changes, aggregates)
	}
}

var savedVariables = regexp.MustCompile(`\{[a-z][A-Za-z0-9]*\}`)

func readKindFile(file string, byName map[string]*kind) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	type entry struct {
		Set map[string]any
		Sub string
	}
	var content struct {
		Kind            string
		Gates           any
		Minimal         map[string]any
		Broken, Changes []entry
	}
	if err := yaml.Unmarshal(text, &content); err != nil {
		return err
	}
	k := byName[content.Kind]
	if k == nil {
		return nil
	}
	k.bases = append(k.bases, comparison.RoundTrip(content.Minimal).(map[string]any))
	for _, e := range content.Broken {
		k.faults = append(k.faults, faults.Change{Set: e.Set})
	}
	for _, e := range content.Changes {
		k.changes = append(k.changes, faults.Change{Set: e.Set, Sub: e.Sub})
	}
	return nil
}
