package openapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/openapi/openapitest"
)

// sinceThen explains the differences from the documents of a 1.26 API server in client-go, which
// have all features but enums. A rule is a suffix of a path and what happened to it.
var sinceThen = []struct{ what, path, why string }{
	{what: "changed", path: ".info.version", why: "those were recorded without it"},
	{what: "changed", path: ".description", why: "texts are those of the types, and of the parameters' options"},
	{what: "new", path: ".description", why: "some fields were not described"},
	{what: "changed", path: ".x-kubernetes-group-version-kind", why: "group versions came and went"},
	{what: "new", path: ".enum", why: "those were recorded without enums"},
	{what: "new", path: ".requestBody.required", why: "bodies are required since 1.27"},
	{what: "new", path: ".x-kubernetes-list-type", why: "more lists say how they are merged"},
	{what: "new", path: ".x-kubernetes-list-map-keys", why: "more lists say how they are merged"},
	{what: "new", path: ".default", why: "defaults of the types are published"},
	{what: "new", path: ".sendInitialEvents", why: "a parameter of 1.27"},
	{what: "new", path: ".ignoreStoreReadErrorWithClusterBreakingPotential", why: "a parameter of 1.32"},
	{what: "new", path: "/log.parameters.stream", why: "a parameter of 1.32"},
	{what: "new", path: "/pods/{name}/resize", why: "a sub-resource of 1.33"},
	{what: "gone", path: ".creationTimestamp.default", why: "types that read themselves have no default since 1.28"},
	{what: "new", path: ".$ref", why: "a reference without a default stands alone"},
	{what: "gone", path: ".allOf", why: "a reference without a default stands alone"},

	{what: "gone", path: ".io.k8s.api.core.v1.ClaimSource", why: "claims of pods are flat since 1.31"},
	{what: "gone", path: ".PodResourceClaim.properties.source", why: "claims of pods are flat since 1.31"},
	{
		what: "gone",
		path: ".PersistentVolumeClaimStatus.properties.resizeStatus",
		why:  "allocatedResourceStatuses took its place in 1.28",
	},
	{
		what: "changed",
		path: ".PersistentVolumeClaimSpec.properties.resources.allOf",
		why:  "claims have requirements of their own since 1.29",
	},
	{what: "gone", path: ".LabelSelectorRequirement.properties.key.x-kubernetes-patch-merge-key", why: "it was never a list"},
	{what: "gone", path: ".LabelSelectorRequirement.properties.key.x-kubernetes-patch-strategy", why: "it was never a list"},
	{what: "changed", path: ".StatefulSetSpec.required", why: "serviceName need not be given since 1.33"},
	{what: "changed", path: ".PodFailurePolicyRule.required", why: "onPodConditions need not be given since 1.27"},
	{what: "new", path: ".HostAlias.required", why: "ip has to be given since 1.31"},
	{what: "new", path: ".PodIP.required", why: "ip has to be given since 1.31"},
}

// selfReading are types without default: types with their own decoder may be null.
var selfReading = []string{
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
	"io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
	"io.k8s.apimachinery.pkg.runtime.RawExtension",
}

func TestDocumentsEqualKubernetes(t *testing.T) {
	recorded, err := openapitest.NewEmbeddedFileClient().Paths()
	if err != nil {
		t.Fatal(err)
	}
	h := service(t)
	compared, used := 0, map[string]bool{}
	for _, at := range slices.Sorted(maps.Keys(recorded)) {
		if at == "apis/networking.k8s.io/v1alpha1" {
			continue // no longer served
		}
		data, err := recorded[at].Schema("application/json")
		if err != nil {
			t.Fatal(err)
		}
		want, got := decodeAny(t, data), decodeAny(t, body(t, h, "/openapi/v3/"+at))
		compared++
		for _, d := range differences("", want, got) {
			if !explained(&d, used) {
				t.Errorf("%s: %s is %s: got %s, want %s", at, d.path, d.what, shorten(d.got), shorten(d.want))
			}
		}
	}
	if compared < 4 {
		t.Errorf("got %d compared documents, want at least 4", compared)
	}
	for _, r := range sinceThen {
		if !used[r.what+r.path] {
			t.Errorf("got nothing %s at %s", r.what, r.path)
		}
	}
}

// difference is a difference of two documents: new, gone, or changed.
type difference struct {
	what, path string
	want, got  any
}

func explained(d *difference, used map[string]bool) bool {
	for _, r := range sinceThen {
		if r.what == d.what && (strings.HasSuffix(d.path, r.path) || strings.Contains(d.path, r.path+".")) {
			used[r.what+r.path] = true
			return true
		}
	}
	name, _ := strings.CutPrefix(d.path, ".components.schemas.")
	switch {
	case d.what == "new" && (!strings.Contains(name, ".properties.") || strings.Count(name[strings.Index(name, ".properties."):], ".") == 2):
		return strings.HasPrefix(d.path, ".components.schemas.io.k8s.api") // a new type or field
	case d.what == "gone" && strings.HasSuffix(d.path, ".default"):
		return reflect.DeepEqual(d.want, map[string]any{}) && d.got == "self-reading"
	}
	return false
}

// differences lists the differences of two documents. Parameters are compared by name.
func differences(path string, want, got any) (out []difference) {
	w, isMap := want.(map[string]any)
	g, isToo := got.(map[string]any)
	if !isMap || !isToo {
		if !reflect.DeepEqual(want, got) {
			out = append(out, difference{"changed", path, want, got})
		}
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		at := path + "." + key
		_, has := g[key]
		switch {
		case has:
			out = append(out, differences(at, w[key], g[key])...)
		case key == "default" && readsItself(g):
			out = append(out, difference{"gone", at, w[key], "self-reading"})
		default:
			out = append(out, difference{"gone", at, w[key], nil})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(g)) {
		if _, had := w[key]; !had {
			out = append(out, difference{"new", path + "." + key, nil, g[key]})
		}
	}
	return out
}

func readsItself(s map[string]any) bool {
	data, _ := json.Marshal(s)
	return slices.ContainsFunc(selfReading, func(name string) bool { return strings.Contains(string(data), "schemas/"+name+`"`) })
}

// decodeAny returns a document with its parameters by name, and without the values of enums in
// descriptions.
func decodeAny(t *testing.T, data []byte) any {
	t.Helper()
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return byName(doc)
}

func byName(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			v[key] = byName(x)
		}
		if list, ok := v["parameters"].([]any); ok {
			named := map[string]any{}
			for _, p := range list {
				p := p.(map[string]any)
				named[fmt.Sprint(p["name"])] = p
			}
			v["parameters"] = named
		}
		return v
	case []any:
		for i := range v {
			v[i] = byName(v[i])
		}
	}
	return v
}

func shorten(v any) string {
	data, _ := json.Marshal(v)
	if len(data) > 150 {
		data = data[:150]
	}
	return string(data)
}
