package main

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"binnacle/e2e/conformance/comparison"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

const (
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
	asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asList     = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	protobuf   = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	apply      = "application/apply-patch+yaml"
)

// install returns the requests that create a definition and show it.
func (c *projectObjects) install(definition object) *comparison.Scenario {
	path := definitions + "/" + definition.text("metadata.name")
	create := comparison.Step{
		Label:    "create the definition",
		Method:   http.MethodPost,
		Path:     definitions,
		Object:   definition.content,
		Encoding: comparison.JSONBody,
	}
	create.Setup = true
	get := comparison.Step{Label: "get the definition", Method: http.MethodGet, Path: path}
	established := get
	established.Until = func(_ int, body any) bool {
		protected := strings.HasSuffix(definition.text("spec.group"), ".k8s.io")
		return condition(body, "Established") && (!protected || condition(body, "KubernetesAPIApprovalPolicyConformant"))
	}
	applied := comparison.Step{
		Label:    "apply the definition",
		Method:   http.MethodPatch,
		Path:     path + "?fieldManager=applier&force=true",
		Object:   definition.content,
		Encoding: comparison.JSONBody,
	}.With("Content-Type", apply)
	return &comparison.Scenario{
		Name:  c.Name + " " + definition.text("metadata.name"),
		Needs: c.reproduceCommand(definition),
		Steps: []comparison.Step{
			create, established, get.With("Accept", asTable), get.With("Accept", "application/vnd.kubernetes.protobuf"), applied,
		},
	}
}

// condition reports whether a condition of an object is true.
func condition(body any, name string) bool {
	list, _ := comparison.Lookup(body, "status.conditions").([]any)
	return slices.ContainsFunc(list, func(c any) bool {
		return comparison.Lookup(c, "type") == name && comparison.Lookup(c, "status") == "True"
	})
}

// remove returns the requests that delete a definition.
func (c *projectObjects) remove(definition object) *comparison.Scenario {
	path := definitions + "/" + definition.text("metadata.name")
	return &comparison.Scenario{
		Name:  c.Name + " " + definition.text("metadata.name"),
		Needs: c.reproduceCommand(definition),
		Steps: []comparison.Step{
			{Label: "delete the definition, dry run", Method: http.MethodDelete, Path: path + "?dryRun=All"},
			{Label: "delete the definition", Method: http.MethodDelete, Path: path},
			{
				Label:  "wait until the definition is gone",
				Method: http.MethodGet,
				Path:   path,
				Until:  func(status int, _ any) bool { return status == http.StatusNotFound },
			},
		},
	}
}

// documents returns scenarios about discovery and OpenAPI of the groups.
func (c *projectObjects) documents() []*comparison.Scenario {
	byVersion := map[string][]version{}
	for _, d := range c.definitions {
		for _, v := range versionsOf(d) {
			byVersion[v.apiVersion()] = append(byVersion[v.apiVersion()], v)
		}
	}
	var out []*comparison.Scenario
	for _, apiVersion := range slices.Sorted(maps.Keys(byVersion)) {
		versions := byVersion[apiVersion]
		slices.SortFunc(versions, func(a, b version) int { return cmp.Compare(a.plural, b.plural) })
		out = append(out, &comparison.Scenario{
			Name:  c.Name + " documents of " + apiVersion,
			Needs: c.reproduceCommand(versions[0].definition),
			Steps: []comparison.Step{
				{
					Label:  "discovery",
					Method: http.MethodGet,
					Path:   "/apis/" + apiVersion,
					Until:  func(_ int, body any) bool { return discovered(body, versions) },
				},
				{Label: "group", Method: http.MethodGet, Path: "/apis/" + versions[0].group},
				{
					Label:  "OpenAPI",
					Method: http.MethodGet,
					Path:   "/openapi/v3/apis/" + apiVersion,
					Until:  func(_ int, body any) bool { return described(body, versions) },
				},
			},
		})
	}
	return out
}

// discovered reports whether a discovery document has all versions.
func discovered(body any, versions []version) bool {
	list, _ := comparison.Lookup(body, "resources").([]any)
	for _, v := range versions {
		if !slices.ContainsFunc(list, func(r any) bool { return comparison.Lookup(r, "name") == v.plural }) {
			return false
		}
	}
	return true
}

// described reports whether an OpenAPI document has all versions.
func described(body any, versions []version) bool {
	schemas, _ := comparison.Lookup(body, "components.schemas").(map[string]any)
	kinds := map[any]bool{}
	for _, s := range schemas {
		list, _ := comparison.Lookup(s, "x-kubernetes-group-version-kind").([]any)
		for _, k := range list {
			kinds[comparison.Lookup(k, "kind")] = true
		}
	}
	return !slices.ContainsFunc(versions, func(v version) bool { return !kinds[v.kind] })
}
