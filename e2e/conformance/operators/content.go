package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
)

// projectObjects holds a project's definitions and samples.
type projectObjects struct {
	project
	definitions []object
	samples     []sample
}

// sample is an object of a version of a custom resource.
type sample struct {
	object
	version   version
	generated bool
}

// version is a served version of a custom resource.
type version struct {
	definition                object
	group, name, kind, plural string
	namespaced                bool
	schema                    map[string]any
	status, scale             bool
	selectableFields          []string // JSON paths without the first dot
	otherVersions             []string // names of the other served versions
}

func (v version) apiVersion() string { return v.group + "/" + v.name }

// collectionPath returns the path of the resource's collection in the named version.
func (v version) collectionPath(version string) string {
	if v.namespaced {
		return "/apis/" + v.group + "/" + version + "/namespaces/{ns}/" + v.plural
	}
	return "/apis/" + v.group + "/" + version + "/" + v.plural
}

func (c *projectObjects) defines(name string) bool {
	return slices.ContainsFunc(c.definitions, func(o object) bool { return o.text("metadata.name") == name })
}

// versionsOf returns the served versions of a definition.
func versionsOf(definition object) []version {
	var out []version
	list, _ := comparison.Lookup(definition.content, "spec.versions").([]any)
	for _, entry := range list {
		if comparison.Lookup(entry, "served") != true {
			continue
		}
		v := version{
			definition: definition,
			group:      definition.text("spec.group"),
			kind:       definition.text("spec.names.kind"),
			plural:     definition.text("spec.names.plural"),
			namespaced: definition.text("spec.scope") == "Namespaced",
			status:     comparison.Lookup(entry, "subresources.status") != nil,
			scale:      comparison.Lookup(entry, "subresources.scale") != nil,
		}
		v.name, _ = comparison.Lookup(entry, "name").(string)
		schema, _ := comparison.Lookup(entry, "schema.openAPIV3Schema").(map[string]any)
		v.schema = faults.WithMetadata(schema)
		fields, _ := comparison.Lookup(entry, "selectableFields").([]any)
		for _, f := range fields {
			v.selectableFields = append(v.selectableFields, strings.TrimPrefix(fmt.Sprint(comparison.Lookup(f, "jsonPath")), "."))
		}
		out = append(out, v)
	}
	for i := range out {
		for j := range out {
			if i != j {
				out[i].otherVersions = append(out[i].otherVersions, out[j].name)
			}
		}
	}
	return out
}

// addSamples adds at most limit objects of each version, and a generated one to versions without any.
func (c *projectObjects) addSamples(objects []object, limit int) {
	for _, d := range c.definitions {
		names := map[string]bool{}
		for _, v := range versionsOf(d) {
			n := 0
			for _, o := range objects {
				if o.text("apiVersion") != v.apiVersion() || o.text("kind") != v.kind {
					continue
				}
				if limit > 0 && n >= limit {
					break
				}
				// Scenarios run concurrently, so cluster-scoped objects need different names.
				name := o.text("metadata.name")
				if names[name] && !v.namespaced {
					continue
				}
				names[name] = true
				n++
				c.samples = append(c.samples, sample{object: o, version: v})
			}
			if n == 0 {
				generated := faults.Minimal(v.schema).(map[string]any)
				generated["apiVersion"], generated["kind"] = v.apiVersion(), v.kind
				generated["metadata"] = map[string]any{"name": "generated-" + v.name}
				c.samples = append(c.samples, sample{
					object:    object{file: "generated", content: generated},
					version:   v,
					generated: true,
				})
			}
		}
	}
}

// count returns the numbers of samples of the project and of generated ones.
func (c *projectObjects) count() (given, generated int) {
	for _, s := range c.samples {
		if s.generated {
			generated++
		} else {
			given++
		}
	}
	return given, generated
}

// run installs the definitions, runs the samples, and removes the definitions.
func (c *projectObjects) run(ctx context.Context, p *comparison.Runner, o options) {
	// kube-apiserver needs seconds for a definition; many at a time exceed its timeouts.
	p.RunAll(ctx, 1, c.scenariosOf(c.install))
	p.RunAll(ctx, o.Workers, slices.Values(c.documents()))
	p.RunAll(ctx, o.Workers, func(yield func(*comparison.Scenario) bool) {
		for i, s := range c.samples {
			name := fmt.Sprintf("%s %s %s", c.Name, s.version.plural, s.file)
			hash := fnv.New64()
			hash.Write([]byte(name))
			r := &sampleRun{sample: s, r: rand.New(rand.NewPCG(o.seed, hash.Sum64()))}
			if !yield(&comparison.Scenario{
				Name:      name,
				Namespace: fmt.Sprintf("%s-%d", c.Name, i),
				Needs:     c.reproduceCommand(s.version.definition),
				Steps:     r.steps(o.faults),
			}) {
				return
			}
		}
	})
	p.RunAll(ctx, 1, c.scenariosOf(c.remove))
}

// scenariosOf returns a scenario for each definition.
func (c *projectObjects) scenariosOf(scenario func(object) *comparison.Scenario) iter.Seq[*comparison.Scenario] {
	return func(yield func(*comparison.Scenario) bool) {
		for _, d := range c.definitions {
			if !yield(scenario(d)) {
				return
			}
		}
	}
}

// reproduceCommand returns a shell command that creates a definition.
func (c *projectObjects) reproduceCommand(definition object) string {
	return fmt.Sprintf("kubectl create -f $(go mod download -json %s | jq -r .Dir)/%s", c.Module, definition.file)
}
