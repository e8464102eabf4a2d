package main

import (
	_ "embed"
	"fmt"
	"net/http"

	"sigs.k8s.io/yaml"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
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
func createCustom(reference, product *comparison.Session) error {
	resources, err := customResources()
	if err != nil {
		return err
	}
	for _, c := range resources {
		plural := comparison.Lookup(c.Spec, "names.plural").(string)
		object := map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + customGroup}, "spec": c.Spec}
		for _, s := range []comparison.Step{
			{Method: http.MethodPost, Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Object: object, Encoding: comparison.JSONBody},
			{Method: http.MethodGet, Path: "/apis/" + customGroup + "/v1/" + plural, Until: comparison.Succeeds},
		} {
			want, got := comparison.Exchange(reference, product, s)
			if exists := want.Status == http.StatusConflict && got.Status == http.StatusConflict; exists {
				continue
			}
			if want.Status >= http.StatusMultipleChoices || got.Status >= http.StatusMultipleChoices || want.Err+got.Err != "" {
				return fmt.Errorf("%s %s: %s | %s", s.Method, plural, comparison.Summary(want), comparison.Summary(got))
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
		out[i].Spec = comparison.RoundTrip(out[i].Spec).(map[string]any)
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
			if comparison.Lookup(c.Spec, "names.plural") != k.resource {
				continue
			}
			for _, b := range c.Bases {
				b["apiVersion"], b["kind"] = k.apiVersion(), k.kind
				k.bases = append(k.bases, b)
			}
			for _, v := range comparison.Lookup(c.Spec, "versions").([]any) {
				if comparison.Lookup(v, "name") == k.version {
					k.schema = faults.WithMetadata(lookupMap(v, "schema.openAPIV3Schema"))
				}
			}
		}
	}
	return nil
}
