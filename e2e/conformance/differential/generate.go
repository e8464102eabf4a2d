package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
)

// stepsPerKind is the number of random requests in a scenario about a kind.
const stepsPerKind = 22

// generator makes scenarios. The same seed and number always give the same scenario.
type generator struct {
	seed   uint64
	kinds  []*kind
	golden []goldenCase
	only   func(name string) bool
}

// scenario returns the scenario with a number.
func (g *generator) scenario(n int) *comparison.Scenario {
	r := rand.New(rand.NewPCG(g.seed, uint64(n)))
	var c *comparison.Scenario
	switch choice := r.IntN(20); {
	case choice == 0:
		c = nonResourcePaths(r)
	case choice <= 3 && len(g.golden) > 0:
		c = mutatedGolden(r, g.golden[r.IntN(len(g.golden))])
	default:
		k := g.kinds[r.IntN(len(g.kinds))]
		c = aboutKind(r, k)
		c.Reviewed = r.IntN(4) == 0
	}
	c.Namespace = fmt.Sprintf("d%d-%d", g.seed, n)
	return c
}

// kindRun generates the requests of a scenario about a kind.
type kindRun struct {
	*kind
	r    *rand.Rand
	base map[string]any
	name string
	// dry is the query of all writes of kinds whose objects affect other requests.
	dry string
	n   int
}

func aboutKind(r *rand.Rand, k *kind) *comparison.Scenario {
	c := &comparison.Scenario{Name: k.resource + "." + k.version + "." + k.group, Steps: comparison.NamespaceSteps()}
	run := &kindRun{kind: k, r: r}
	run.base = map[string]any{"apiVersion": k.apiVersion(), "kind": k.kind, "metadata": map[string]any{"name": "x"}}
	if len(k.bases) > 0 {
		run.base = comparison.RoundTrip(k.bases[r.IntN(len(k.bases))]).(map[string]any)
	}
	metadata, ok := run.base["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		run.base["metadata"] = metadata
	}
	delete(metadata, "namespace")
	delete(metadata, "resourceVersion")
	if metadata["name"] == nil { // a random name would differ
		delete(metadata, "generateName")
		metadata["name"] = "generated"
	}
	if k.resource == "jobs" && metadata["labels"] == nil { // kube-apiserver adds the labels of the template when it reads a Job
		metadata["labels"] = map[string]any{"a": "b"}
	}
	run.name, _ = metadata["name"].(string)
	if k.resource == "ipaddresses" { // no address of the service range
		metadata["name"] = fmt.Sprintf("192.0.%d.%d", r.IntN(256), r.IntN(256))
		run.name = metadata["name"].(string)
	}
	fixed := slices.Contains([]string{"apiservices", "ipaddresses", "customresourcedefinitions", "clustertrustbundles", "certificatesigningrequests"}, k.resource)
	if !k.namespaced && !strings.Contains(run.name, "{ns}") && !fixed {
		run.name = "{ns}-" + strings.ToLower(run.name)
		metadata["name"] = run.name
	}
	if k.influential() || !k.namespaced && !strings.Contains(run.name, "{ns}") {
		run.dry = "dryRun=All"
	}
	if k.has("create") {
		s := comparison.Step{Label: "base", Method: http.MethodPost, Path: k.collection(), Object: run.base, Encoding: comparison.JSONBody, Setup: true,
			Save: map[string]string{"rv": "metadata.resourceVersion", "uid": "metadata.uid"}}
		c.Steps = append(c.Steps, s.Query(run.dry))
	}
	makers := run.makers()
	for range stepsPerKind {
		run.n++
		s := makers[r.IntN(len(makers))]()
		if r.IntN(25) == 0 {
			s = s.With("Impersonate-User", []string{"alice", "system:serviceaccount:{ns}:default", "system:node:n", "system:anonymous"}[r.IntN(4)])
			s.Label += ", impersonated"
		}
		c.Steps = append(c.Steps, s)
	}
	if k.has("watch") && k.namespaced && r.IntN(2) == 0 {
		c.Steps = append(c.Steps, comparison.Step{Label: "all events", Method: http.MethodGet, Path: k.collection() + "?watch=1&timeoutSeconds=1&resourceVersion={rv}"})
	}
	if k.has("delete") && run.name != "" {
		c.Steps = append(c.Steps, comparison.Step{Label: "delete the base", Method: http.MethodDelete, Path: run.object()}.Query(run.dry))
	}
	return c
}

// makers returns the functions that make random requests. Each is as frequent as its number.
func (k *kindRun) makers() []func() comparison.Step {
	if k.has("create") && !k.has("get") { // a review
		return []func() comparison.Step{k.create, k.create, k.create, k.create, k.create, k.create, k.list, k.odd}
	}
	return []func() comparison.Step{
		k.create, k.create, k.create, k.create, k.put, k.put, k.put, k.patch, k.patch, k.patch, k.patch, k.subresource, k.subresource,
		k.get, k.list, k.odd, k.remove, k.watch, k.annotate, k.pages,
	}
}

func (k *kindRun) object() string { return k.collection() + "/" + k.name }

func (k *kindRun) copy() map[string]any { return comparison.RoundTrip(k.base).(map[string]any) }

// writeQuery returns random parameters of a write.
func (k *kindRun) writeQuery() string {
	var parts []string
	if k.r.IntN(3) == 0 {
		parts = append(parts, "fieldValidation="+faults.Pick(k.r, "Strict", "Warn", "Ignore", "Strict", "Strict", "Warn", "Bogus", ""))
	}
	if k.dry != "" {
		parts = append(parts, k.dry)
	} else if k.r.IntN(6) == 0 {
		parts = append(parts, "dryRun="+faults.Pick(k.r, "All", "All", "All", "all", "", "All&dryRun=All"))
	}
	if k.r.IntN(8) == 0 {
		parts = append(parts, "fieldManager="+faults.Pick(k.r, "m", "m", "other", "", strings.Repeat("m", 129), "a%0Ab"))
	}
	if k.r.IntN(30) == 0 {
		parts = append(parts, faults.Pick(k.r, "pretty=true", "force=true", "timeout=5s", "timeout=x", "bogus=1", "resourceVersion=1", "propagationPolicy=Bogus"))
	}
	return strings.Join(parts, "&")
}

// anyEncoding returns a random encoding for a body.
func (k *kindRun) anyEncoding() comparison.Encoding {
	switch k.r.IntN(10) {
	case 0, 1:
		return comparison.YAMLBody
	case 2:
		if !k.custom {
			return comparison.ProtobufBody
		}
		return comparison.YAMLBody
	}
	return comparison.JSONBody
}

// form adds a random Accept header to a step.
func (k *kindRun) form(s comparison.Step, often int) comparison.Step {
	if k.r.IntN(often) > 0 {
		return s
	}
	return s.With("Accept", faults.Pick(k.r,
		"application/yaml", "application/vnd.kubernetes.protobuf", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/yaml;as=Table;g=meta.k8s.io;v=v1", "application/cbor", "text/plain", "*/*", "application/*",
		"application/json;q=0.1,application/yaml;q=0.9", "application/json;as=Bogus;g=meta.k8s.io;v=v1", "application/json;stream=watch", "application/json;profile=x", "application/json;as=Table;g=meta.k8s.io;v=v2", "", "application/json;pretty=1",
		"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json", "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
		"application/yaml;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1", "application/cbor;as=Table;g=meta.k8s.io;v=v1", "application/cbor-seq", "application/cbor,application/json;q=0.5",
		"application/json;as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json", "application/vnd.kubernetes.protobuf;stream=watch"))
}

func (k *kindRun) create() comparison.Step {
	object, label := k.copy(), "create"
	if m, ok := object["metadata"].(map[string]any); ok && k.r.IntN(8) > 0 {
		m["name"] = fmt.Sprintf("%s-%d", k.name, k.n)
	}
	if k.r.IntN(12) > 0 {
		var what string
		object, what = faults.Mutate(k.r, object, k.schema, k.faults)
		label += ": " + what
	}
	if labels, ok := comparison.Lookup(object, "metadata.labels").(map[string]any); ok && k.resource == "jobs" && len(labels) == 0 {
		labels["a"] = "b" // as for the base
	}
	if m, _ := object["metadata"].(map[string]any); k.resource == "limitranges" && m["name"] == nil { // the server generates a random name
		object = faults.Set(object, []string{"metadata", "name"}, k.name).(map[string]any)
	}
	if version, ok := comparison.Lookup(object, "metadata.resourceVersion").(string); ok && strings.Trim(version, "0123456789") != "" {
		// kube-apiserver ignores the text, but a dry run returns it.
		delete(object["metadata"].(map[string]any), "resourceVersion")
	}
	if token, ok := comparison.Lookup(object, "spec.token").(string); ok && k.resource == "tokenreviews" {
		// kube-apiserver takes a token that starts with a space for an anonymous request.
		object["spec"].(map[string]any)["token"] = strings.TrimLeft(token, " ")
	}
	s := comparison.Step{Label: label, Method: http.MethodPost, Path: k.collection(), Object: object, Encoding: k.anyEncoding()}
	return k.form(s.Query(k.writeQuery()), 12)
}

func (k *kindRun) put() comparison.Step {
	object, label := k.copy(), "put"
	switch k.r.IntN(6) {
	case 0:
		object = faults.Set(object, []string{"metadata", "resourceVersion"}, faults.Pick(k.r, "{rv}", "{rv}", "1", "x", "")).(map[string]any)
	case 1:
		object = faults.Set(object, []string{"metadata", "uid"}, faults.Pick(k.r, "{uid}", "other")).(map[string]any)
	}
	if len(k.changes) > 0 && k.r.IntN(3) == 0 {
		c := k.changes[k.r.IntN(len(k.changes))]
		object, label = c.Apply(object), label+": "+comparison.Shorten(comparison.JSONText(c.Set), 200)
	} else if k.r.IntN(12) > 0 {
		var what string
		object, what = faults.Mutate(k.r, object, k.schema, k.faults)
		label += ": " + what
	}
	path := k.object()
	if k.r.IntN(25) == 0 {
		path += "-other"
	}
	s := comparison.Step{Label: label, Method: http.MethodPut, Path: path, Object: object, Encoding: k.anyEncoding()}
	return k.form(s.Query(k.writeQuery()), 12)
}

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyYAML      = "application/apply-patch+yaml"
	applyCBOR      = "application/apply-patch+cbor"
)

func (k *kindRun) patch() comparison.Step { return k.patchOf(k.object(), k.base, k.schema) }

func (k *kindRun) patchOf(path string, base, schema map[string]any) comparison.Step {
	s := comparison.Step{Method: http.MethodPatch, Path: path}
	media := faults.Pick(k.r, jsonPatch, mergePatch, mergePatch, strategicPatch, strategicPatch, applyYAML, applyYAML, applyYAML, applyYAML)
	if k.r.IntN(60) == 0 {
		media = faults.Pick(k.r, applyCBOR, "application/json", "text/plain", "", "application/merge-patch+json;charset=utf-8")
	}
	query := k.writeQuery()
	switch media {
	case jsonPatch:
		s.Object, s.Encoding = k.operations(base, schema), comparison.JSONBody
		s.Label = "JSON patch " + comparison.Shorten(comparison.JSONText(s.Object), 300)
	case applyYAML, applyCBOR:
		if k.custom && strings.HasSuffix(path, "/scale") { // kube-apiserver fails
			s.Method, media = http.MethodGet, ""
		}
		object, label := comparison.RoundTrip(base).(map[string]any), "apply"
		if k.r.IntN(8) > 0 {
			var what string
			object, what = faults.Mutate(k.r, object, schema, k.faults)
			label += ": " + what
		}
		s.Object, s.Encoding, s.Label = object, comparison.JSONBody, label
		if media == applyCBOR {
			s.Encoding = comparison.CBORBody
		}
		if !strings.Contains(query, "fieldManager") && k.r.IntN(30) > 0 {
			query += "&fieldManager=" + faults.Pick(k.r, "applier", "applier", "second")
		}
		if k.r.IntN(2) == 0 {
			query += "&force=" + faults.Pick(k.r, "true", "true", "true", "false", "x")
		}
		query = strings.TrimPrefix(query, "&")
	default:
		place := faults.PickSite(k.r, base, schema)
		value, what := faults.Fault(k.r, place)
		if value == any(faults.Missing{}) {
			value = nil
		}
		s.Object, s.Label = partial(base, place.Path, value), media+": "+what
		if k.r.IntN(20) == 0 {
			s.Object = faults.Pick[any](k.r, []any{}, "x", map[string]any{"$patch": "delete"}, map[string]any{"spec": map[string]any{"$patch": "replace"}}, map[string]any{}, nil,
				map[string]any{"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []any{"a"}}}, map[string]any{"spec": map[string]any{"$retainKeys": []any{"x"}}})
			s.Label = media
		}
		if s.Object == nil {
			s.Text = "null"
		}
		s.Encoding = comparison.JSONBody
	}
	return k.form(s.With("Content-Type", media).Query(query), 15)
}

// partial returns an object with the value at a path only. Elements of lists are written with their
// whole list, merged by names where they have one.
func partial(base any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch t := base.(type) {
	case map[string]any:
		return map[string]any{path[0]: partial(t[path[0]], path[1:], value)}
	case []any:
		return faults.Set(t, path, value)
	}
	return map[string]any{path[0]: partial(nil, path[1:], value)}
}

// operations returns a random JSON patch.
func (k *kindRun) operations(base, schema map[string]any) any {
	var ops []any
	for range 1 + k.r.IntN(2) {
		place := faults.PickSite(k.r, base, schema)
		value, _ := faults.Fault(k.r, place)
		op := map[string]any{"path": pointer(place.Path), "op": faults.Pick(k.r, "add", "add", "replace", "replace", "remove", "test", "copy", "move", "bogus")}
		if value == any(faults.Missing{}) {
			op["op"] = "remove"
		} else if op["op"] != "remove" {
			op["value"] = value
		}
		if op["op"] == "copy" || op["op"] == "move" {
			op["from"] = pointer(faults.PickSite(k.r, base, schema).Path)
		}
		if k.r.IntN(15) == 0 {
			op["path"] = faults.Pick(k.r, "", "/", "x", "/metadata/labels/-", "/spec/0", "/metadata/~", "/a/b/c")
		}
		ops = append(ops, op)
	}
	return ops
}

func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	return b.String()
}

func (k *kindRun) subresource() comparison.Step {
	if len(k.subresources) == 0 {
		return k.put()
	}
	sub := k.subresources[k.r.IntN(len(k.subresources))]
	path := k.object() + "/" + sub.name
	verb := faults.Pick(k.r, "get", "update", "update", "patch", "patch", "create")
	if slices.Contains([]string{"exec", "attach", "portforward", "proxy", "log"}, sub.name) {
		return k.form(comparison.Step{Label: "subresource", Method: http.MethodGet, Path: path}, 4)
	}
	switch {
	case verb == "get":
		return k.form(comparison.Step{Label: "get", Method: http.MethodGet, Path: path}, 2)
	case slices.Contains(sub.verbs, "create") && (verb == "create" || !slices.Contains(sub.verbs, "update")):
		body := map[string]any{"apiVersion": strings.TrimPrefix(sub.group+"/"+sub.version, "/"), "kind": sub.kind, "metadata": map[string]any{"name": k.name}}
		if k.r.IntN(2) == 0 {
			body = faults.Set(body, []string{faults.Pick(k.r, "spec", "deleteOptions", "target", "metadata")}, faults.Pick[any](k.r, map[string]any{"name": "n"}, map[string]any{"audiences": []any{"a"}}, map[string]any{"expirationSeconds": json.Number("1")}, nil, "x")).(map[string]any)
		}
		s := comparison.Step{Label: "create the subresource", Method: http.MethodPost, Path: path, Object: body, Encoding: k.anyEncoding()}.Query(k.writeQuery())
		if sub.name == "eviction" { // kube-apiserver writes the condition of the pod before it deletes the pod
			s = s.Query("dryRun=All")
		}
		return k.form(s, 10)
	}
	base := k.copy()
	if sub.kind == "Scale" {
		base = map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": k.name}, "spec": map[string]any{"replicas": json.Number(faults.Pick(k.r, "2", "0", "-1", "3"))}}
	}
	if verb == "patch" {
		return k.patchOf(path, base, k.statusSchema(sub))
	}
	label := "put " + sub.name
	if len(k.changes) > 0 && k.r.IntN(2) == 0 {
		c := k.changes[k.r.IntN(len(k.changes))]
		base, label = c.Apply(base), label+": "+comparison.Shorten(comparison.JSONText(c.Set), 200)
	} else {
		s := faults.PickSite(k.r, base, k.statusSchema(sub))
		if sub.name == "status" && k.r.IntN(5) > 0 && k.schema != nil {
			if status, ok := comparison.Lookup(k.schema, "properties.status").(map[string]any); ok {
				value := faults.Generate(k.r, status, 0)
				base, label = faults.Set(base, []string{"status"}, value).(map[string]any), label+": "+comparison.Shorten(comparison.JSONText(value), 200)
				s.Path = nil
			}
		}
		if s.Path != nil {
			value, what := faults.Fault(k.r, s)
			base, label = faults.Set(base, s.Path, value).(map[string]any), label+": "+what
		}
	}
	return k.form(comparison.Step{Label: label, Method: http.MethodPut, Path: path, Object: base, Encoding: k.anyEncoding()}.Query(k.writeQuery()), 10)
}

func (k *kindRun) statusSchema(sub subresource) map[string]any {
	if sub.kind == "Scale" {
		return map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{"replicas": map[string]any{"type": "integer"}}}, "metadata": lookupMap(k.schema, "properties.metadata")}}
	}
	return k.schema
}

func lookupMap(v any, path string) map[string]any {
	m, _ := comparison.Lookup(v, path).(map[string]any)
	return m
}
