package main

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"

	"sigs.k8s.io/yaml"
)

// customGroup is the group of the custom resources.
const customGroup = "differential.example.com"

// customText has the definitions of custom resources, each with valid objects.
//
//go:embed custom.yaml
var customText []byte

// customResource is a definition and its valid objects.
type customResource struct {
	Spec  map[string]any
	Bases []map[string]any
}

// createCustom creates the definitions on both servers and waits until they are served.
func createCustom(reference, product *session) error {
	resources, err := customResources()
	if err != nil {
		return err
	}
	for _, c := range resources {
		plural := lookup(c.Spec, "names.plural").(string)
		object := map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + customGroup}, "spec": c.Spec}
		for _, s := range []step{
			{method: http.MethodPost, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object: object, encoding: jsonBody},
			{method: http.MethodGet, path: "/apis/" + customGroup + "/v1/" + plural, until: http.StatusOK},
		} {
			want, got := exchange(reference, product, s)
			if exists := want.status == http.StatusConflict && got.status == http.StatusConflict; exists {
				continue
			}
			if want.status >= http.StatusMultipleChoices || got.status >= http.StatusMultipleChoices || want.err+got.err != "" {
				return fmt.Errorf("%s %s: %s | %s", s.method, plural, summary(want), summary(got))
			}
		}
	}
	return nil
}

func customResources() ([]customResource, error) {
	var out []customResource
	if err := yaml.Unmarshal(customText, &out); err != nil {
		return nil, fmt.Errorf("custom.yaml: %w", err)
	}
	for i := range out {
		out[i].Spec = roundTrip(out[i].Spec).(map[string]any)
		out[i].Spec["group"] = customGroup
	}
	return out, nil
}

// addCustomBases adds the valid objects and the schemas of custom resources to their kinds.
func addCustomBases(kinds []*kind) error {
	resources, err := customResources()
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if k.group != customGroup {
			continue
		}
		for _, c := range resources {
			if lookup(c.Spec, "names.plural") != k.resource {
				continue
			}
			for _, b := range c.Bases {
				b["apiVersion"], b["kind"] = k.apiVersion(), k.kind
				k.bases = append(k.bases, b)
			}
			for _, v := range lookup(c.Spec, "versions").([]any) {
				if lookup(v, "name") == k.version {
					k.schema = withMetadata(lookupMap(v, "schema.openAPIV3Schema"))
				}
			}
		}
	}
	return nil
}

// withMetadata adds a schema of metadata to that of a custom resource.
func withMetadata(schema map[string]any) map[string]any {
	texts := map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
	text := map[string]any{"type": "string"}
	return set(schema, strings.Split("properties.metadata", "."), map[string]any{"type": "object", "properties": map[string]any{
		"labels": texts, "annotations": texts, "name": text, "namespace": text, "uid": text, "generation": map[string]any{"type": "integer"},
		"finalizers": map[string]any{"type": "array", "items": text}, "generateName": text, "creationTimestamp": text, "deletionTimestamp": text,
		"ownerReferences": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{"apiVersion": text, "kind": text, "name": text, "uid": text, "controller": map[string]any{"type": "boolean"}}}},
	}}).(map[string]any)
}
