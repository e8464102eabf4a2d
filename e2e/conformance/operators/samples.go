package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
)

// sampleRun makes the requests about a sample.
type sampleRun struct {
	sample
	r    *rand.Rand
	name string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// steps returns the requests about a sample, with a number of faults.
func (s *sampleRun) steps(number int) []comparison.Step {
	metadata, ok := s.content["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		s.content["metadata"] = metadata
	}
	delete(metadata, "namespace")
	delete(metadata, "resourceVersion")
	delete(metadata, "uid")
	if s.name = s.text("metadata.name"); s.name == "" {
		s.name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(filepath.Base(s.file)), "-"), "-")
		metadata["name"] = s.name
	}
	var out []comparison.Step
	if s.version.namespaced {
		out = comparison.NamespaceSteps()
	}
	out = append(out, s.creation()...)
	out = append(out, s.reads()...)
	out = append(out, s.writes()...)
	for range number {
		out = append(out, s.faulty())
	}
	if s.version.status {
		out = append(out, s.status()...)
	}
	if s.version.scale {
		out = append(out, s.scaling()...)
	}
	return append(out, s.end()...)
}

func (s *sampleRun) path() string { return s.version.collectionPath(s.version.name) + "/" + s.name }

func (s *sampleRun) copy() map[string]any {
	return comparison.RoundTrip(s.content).(map[string]any)
}

// get returns a request for a path in a form; empty is JSON.
func get(label, path, accept string) comparison.Step {
	s := comparison.Step{Label: label, Method: http.MethodGet, Path: path}
	if accept != "" {
		s = s.With("Accept", accept)
	}
	return s
}

// patch returns a patch of a path.
func patch(label, path, media string, body any) comparison.Step {
	return comparison.Step{
		Label:    label,
		Method:   http.MethodPatch,
		Path:     path,
		Object:   body,
		Encoding: comparison.JSONBody,
	}.With("Content-Type", media)
}

func (s *sampleRun) creation() []comparison.Step {
	create := comparison.Step{
		Label:    "create",
		Method:   http.MethodPost,
		Path:     s.version.collectionPath(s.version.name),
		Object:   s.copy(),
		Encoding: comparison.JSONBody,
	}
	dry, strict, again, inYAML := create.Query("dryRun=All"), create.Query("dryRun=All&fieldValidation=Strict"), create, create.Query("dryRun=All&fieldManager=m")
	dry.Label, strict.Label, again.Label, inYAML.Label = "create, dry run", "create, strict", "create again", "create as YAML"
	inYAML.Encoding = comparison.YAMLBody
	create.Setup, create.Save = true, map[string]string{"rv": "metadata.resourceVersion", "uid": "metadata.uid"}
	return []comparison.Step{dry, strict, inYAML, create, again}
}

// selection returns the query that selects the sample in a list.
func (s *sampleRun) selection() string {
	if s.version.namespaced {
		return ""
	}
	return "fieldSelector=metadata.name%3D" + s.name
}

func (s *sampleRun) reads() []comparison.Step {
	collection, path := s.version.collectionPath(s.version.name), s.path()
	out := []comparison.Step{
		get("get", path, ""), get("get as YAML", path, "application/yaml"), get("get as table", path, asTable),
		get("get as metadata", path, asMetadata),
		get("get as protobuf", path, "application/vnd.kubernetes.protobuf"),
	}
	for _, form := range []string{"", asTable, asList, protobuf, "application/yaml"} {
		out = append(out, get("list "+form, collection, form).Query(s.selection()))
	}
	out = append(out, get("list with limit", collection, "").Query(s.selection()).Query("limit=1"),
		get("list of all namespaces", "/apis/"+s.version.apiVersion()+"/"+s.version.plural,
			asTable).Query("fieldSelector=metadata.name%3D"+s.name+",metadata.namespace%3D{ns}"))
	for _, field := range s.version.selectableFields {
		for _, value := range []string{fmt.Sprint(comparison.Lookup(s.content, field)), "absent"} {
			out = append(out, get("list by field", collection, "").Query("fieldSelector="+url.QueryEscape(field+"="+value)))
		}
	}
	for _, other := range s.version.otherVersions {
		out = append(out, get("get in version "+other, s.version.collectionPath(other)+"/"+s.name, ""),
			get("list in version "+other, s.version.collectionPath(other), asTable).Query(s.selection()))
	}
	return out
}

func (s *sampleRun) writes() []comparison.Step {
	path := s.path()
	labels := func(value any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"operators": value}}}
	}
	changed := faults.Set(s.copy(), []string{"metadata", "labels", "operators"}, "put").(map[string]any)
	put := func(label, version string) comparison.Step {
		return comparison.Step{
			Label:    label,
			Method:   http.MethodPut,
			Path:     path,
			Object:   faults.Set(changed, []string{"metadata", "resourceVersion"}, version),
			Encoding: comparison.JSONBody,
		}
	}
	withoutSpec := maps.Clone(s.copy())
	delete(withoutSpec, "spec")
	operation := func(op, path string, value any) map[string]any {
		return map[string]any{"op": op, "path": path, "value": value}
	}
	return []comparison.Step{
		patch("merge patch of an unknown field", path+"?fieldValidation=Strict", mergePatch,
			map[string]any{"spec": map[string]any{"unknownField": 1}}),
		patch("apply, dry run", path+"?fieldManager=applier&dryRun=All", apply, s.copy()),
		patch("apply", path+"?fieldManager=applier", apply, s.copy()),
		patch("apply again", path+"?fieldManager=applier", apply, s.copy()),
		patch("apply as another manager", path+"?fieldManager=second", apply, changed),
		patch("apply without manager", path, apply, s.copy()),
		patch("apply without spec", path+"?fieldManager=applier", apply, withoutSpec),
		patch("apply another object", path+"-applied?fieldManager=applier", apply,
			faults.Set(s.copy(), []string{"metadata", "name"}, s.name+"-applied")),
		{Label: "delete the other object", Method: http.MethodDelete, Path: path + "-applied"},
		patch("merge patch", path, mergePatch, labels("merged")),
		patch("merge patch, dry run", path+"?dryRun=All", mergePatch, map[string]any{"spec": nil}),
		patch("strategic merge patch", path, "application/strategic-merge-patch+json", labels("x")),
		patch("JSON patch", path, jsonPatch,
			[]any{operation("test", "/metadata/labels/operators", "merged"),
				operation("replace", "/metadata/labels/operators", "patched")}),
		patch("JSON patch that fails", path, jsonPatch, []any{operation("test", "/kind", "x")}),
		put("put", "{rv}"), put("put a conflict", "1"),
		get("get", path, ""),
	}
}

// faulty returns a write with faults. It is a dry run.
func (s *sampleRun) faulty() comparison.Step {
	object, label := faults.Mutate(s.r, s.copy(), s.version.schema, nil)
	validation := faults.Pick(s.r, "Strict", "Warn", "Ignore")
	query := "?dryRun=All&fieldValidation=" + validation
	switch s.r.IntN(5) {
	case 0:
		return comparison.Step{
			Label:    "put: " + label,
			Method:   http.MethodPut,
			Path:     s.path() + query,
			Object:   object,
			Encoding: comparison.JSONBody,
		}
	case 1:
		return patch("apply: "+label, s.path()+query+"&fieldManager=third&force=true", apply, object)
	case 2:
		return patch("merge patch: "+label, s.path()+query, mergePatch, object)
	}
	return comparison.Step{
		Label:    "create: " + label,
		Method:   http.MethodPost,
		Path:     s.version.collectionPath(s.version.name) + query,
		Object:   faults.Set(object, []string{"metadata", "name"}, "faulty"),
		Encoding: comparison.JSONBody,
	}
}

func (s *sampleRun) status() []comparison.Step {
	path := s.path() + "/status"
	var out []comparison.Step
	schema, _ := comparison.Lookup(s.version.schema, "properties.status").(map[string]any)
	values := []any{faults.Minimal(schema)}
	for range 3 {
		values = append(values, faults.Generate(s.r, schema, 0))
	}
	for _, v := range values {
		out = append(out, comparison.Step{
			Label:    "put the status",
			Method:   http.MethodPut,
			Path:     path,
			Object:   faults.Set(s.copy(), []string{"status"}, v),
			Encoding: comparison.JSONBody,
		})
	}
	object := map[string]any{
		"apiVersion": s.version.apiVersion(),
		"kind":       s.version.kind,
		"metadata":   map[string]any{"name": s.name},
		"status":     values[0],
	}
	return append(out,
		get("get the status", path, ""), get("get the status as table", path, asTable),
		patch("merge patch of the status", path, mergePatch, map[string]any{
			"status": values[0],
			"spec":   map[string]any{"ignored": true},
		}),
		patch("apply the status", path+"?fieldManager=controller&force=true", apply, object),
		patch("JSON patch of the status", path, jsonPatch,
			[]any{map[string]any{"op": "add", "path": "/status", "value": values[1]}}),
		patch("patch of the status without the subresource", s.path(), mergePatch,
			map[string]any{"status": map[string]any{"ignored": true}}),
		get("list with the status", s.version.collectionPath(s.version.name), asTable).Query(s.selection()),
	)
}

func (s *sampleRun) scaling() []comparison.Step {
	path := s.path() + "/scale"
	scale := func(replicas string) map[string]any {
		return map[string]any{
			"apiVersion": "autoscaling/v1",
			"kind":       "Scale",
			"metadata":   map[string]any{"name": s.name},
			"spec":       map[string]any{"replicas": json.Number(replicas)},
		}
	}
	return []comparison.Step{
		get("get the scale", path, ""), get("get the scale as table", path, asTable),
		get("get the scale as protobuf", path, "application/vnd.kubernetes.protobuf"),
		patch("patch the scale", path, mergePatch, map[string]any{"spec": map[string]any{"replicas": json.Number("3")}}),
		patch("apply the scale", path+"?fieldManager=scaler&force=true", apply, scale("2")),
		{Label: "put the scale", Method: http.MethodPut, Path: path, Object: scale("1"), Encoding: comparison.JSONBody},
		{Label: "put a negative scale", Method: http.MethodPut, Path: path, Object: scale("-1"), Encoding: comparison.JSONBody},
		get("get after scaling", s.path(), ""),
	}
}

func (s *sampleRun) end() []comparison.Step {
	collection := s.version.collectionPath(s.version.name)
	watch := get("watch", collection, "").Query(s.selection()).Query("watch=1&timeoutSeconds=1")
	return []comparison.Step{
		watch.Query("resourceVersion={rv}"),
		watch.Query("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
		{Label: "delete, dry run", Method: http.MethodDelete, Path: s.path() + "?dryRun=All"},
		{
			Label:  "delete with a precondition",
			Method: http.MethodDelete,
			Path:   s.path(),
			Object: map[string]any{
				"apiVersion":    "v1",
				"kind":          "DeleteOptions",
				"preconditions": map[string]any{"uid": "other"},
			},
			Encoding: comparison.JSONBody,
		},
		{
			Label:  "delete",
			Method: http.MethodDelete,
			Path:   s.path(),
			Object: map[string]any{
				"apiVersion":    "v1",
				"kind":          "DeleteOptions",
				"preconditions": map[string]any{"uid": "{uid}"},
			},
			Encoding: comparison.JSONBody,
		},
		patch("remove the finalizers", s.path(), mergePatch, map[string]any{"metadata": map[string]any{"finalizers": nil}}),
		get("get after the deletion", s.path(), ""),
		comparison.Step{Label: "delete the collection", Method: http.MethodDelete, Path: collection}.Query(s.selection()),
	}
}
