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

// knownDifferences explains the differences from the documents of a 1.26 API server in client-go.
// Those have all features but enums. path is a suffix of the path of a difference.
var knownDifferences = []struct{ change, path, why string }{
	{change: "changed", path: ".info.version", why: "the old documents were recorded without it"},
	{change: "changed", path: ".description", why: "texts are those of the types, and of the parameters' options"},
	{change: "new", path: ".description", why: "some fields were not described"},
	{change: "changed", path: ".x-kubernetes-group-version-kind", why: "group versions were added and removed"},
	{change: "new", path: ".enum", why: "the old documents were recorded without enums"},
	{change: "new", path: ".requestBody.required", why: "bodies are required since 1.27"},
	{change: "new", path: ".x-kubernetes-list-type", why: "more lists state how they are merged"},
	{change: "new", path: ".x-kubernetes-list-map-keys", why: "more lists state how they are merged"},
	{change: "new", path: ".default", why: "defaults of the types are published"},
	{change: "new", path: ".sendInitialEvents", why: "a parameter of 1.27"},
	{change: "new", path: ".ignoreStoreReadErrorWithClusterBreakingPotential", why: "a parameter of 1.32"},
	{change: "new", path: "/log.parameters.stream", why: "a parameter of 1.32"},
	{change: "new", path: "/pods/{name}/resize", why: "a subresource of 1.33"},
	{change: "gone", path: ".creationTimestamp.default", why: "types that decode themselves have no default since 1.28"},
	{change: "new", path: ".$ref", why: "a reference without a default needs no allOf"},
	{change: "gone", path: ".allOf", why: "a reference without a default needs no allOf"},

	{change: "gone", path: ".io.k8s.api.core.v1.ClaimSource", why: "claims of pods are flat since 1.31"},
	{change: "gone", path: ".PodResourceClaim.properties.source", why: "claims of pods are flat since 1.31"},
	{
		change: "gone",
		path:   ".PersistentVolumeClaimStatus.properties.resizeStatus",
		why:    "allocatedResourceStatuses replaced it in 1.28",
	},
	{
		change: "changed",
		path:   ".PersistentVolumeClaimSpec.properties.resources.allOf",
		why:    "claims have requirements of their own since 1.29",
	},
	{change: "gone", path: ".LabelSelectorRequirement.properties.key.x-kubernetes-patch-merge-key", why: "it was never a list"},
	{change: "gone", path: ".LabelSelectorRequirement.properties.key.x-kubernetes-patch-strategy", why: "it was never a list"},
	{change: "changed", path: ".StatefulSetSpec.required", why: "serviceName is optional since 1.33"},
	{change: "changed", path: ".PodFailurePolicyRule.required", why: "onPodConditions is optional since 1.27"},
	{change: "new", path: ".HostAlias.required", why: "ip is required since 1.31"},
	{change: "new", path: ".PodIP.required", why: "ip is required since 1.31"},
}

// typesWithDecoder are types that decode themselves. Their fields may be null, so they have no
// default.
var typesWithDecoder = []string{
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
	"io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
	"io.k8s.apimachinery.pkg.runtime.RawExtension",
}

// TestDocumentsEqualKubernetes checks that the v3 documents differ from those of Kubernetes 1.26
// only in known ways, and that each known difference occurs.
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
			if !isExplained(&d, used) {
				t.Errorf("%s: %s is %s: got %s, want %s", at, d.path, d.change, shorten(d.got), shorten(d.want))
			}
		}
	}
	if compared < 4 {
		t.Errorf("got %d compared documents, want at least 4", compared)
	}
	for _, r := range knownDifferences {
		if !used[r.change+r.path] {
			t.Errorf("known difference, %s at %s (%s): got none, want at least one", r.change, r.path, r.why)
		}
	}
}

// decodedByType stands for the missing default of a field whose type decodes itself.
const decodedByType = "decoded by its type"

// difference is a difference of two documents.
type difference struct {
	change, path string // change is "new", "gone" or "changed"
	want, got    any
}

// isExplained reports whether a difference is known, or is a new type or field. It marks the rule
// in used.
func isExplained(diff *difference, used map[string]bool) bool {
	for _, r := range knownDifferences {
		if r.change == diff.change && (strings.HasSuffix(diff.path, r.path) || strings.Contains(diff.path, r.path+".")) {
			used[r.change+r.path] = true
			return true
		}
	}
	name, _ := strings.CutPrefix(diff.path, ".components.schemas.")
	_, property, isInProperties := strings.Cut(name, ".properties.")
	isTypeOrField := !isInProperties || !strings.Contains(property, ".")
	switch {
	case diff.change == "new" && isTypeOrField:
		return strings.HasPrefix(diff.path, ".components.schemas.io.k8s.api")
	case diff.change == "gone" && strings.HasSuffix(diff.path, ".default"):
		return reflect.DeepEqual(diff.want, map[string]any{}) && diff.got == decodedByType
	}
	return false
}

// differences lists the differences of two documents. Parameters are compared by name.
func differences(path string, want, got any) (out []difference) {
	wantMap, isWantMap := want.(map[string]any)
	gotMap, isGotMap := got.(map[string]any)
	if !isWantMap || !isGotMap {
		if !reflect.DeepEqual(want, got) {
			out = append(out, difference{"changed", path, want, got})
		}
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(wantMap)) {
		at := path + "." + key
		_, has := gotMap[key]
		switch {
		case has:
			out = append(out, differences(at, wantMap[key], gotMap[key])...)
		case key == "default" && hasOwnDecoder(gotMap):
			out = append(out, difference{"gone", at, wantMap[key], decodedByType})
		default:
			out = append(out, difference{"gone", at, wantMap[key], nil})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(gotMap)) {
		if _, had := wantMap[key]; !had {
			out = append(out, difference{"new", path + "." + key, nil, gotMap[key]})
		}
	}
	return out
}

// hasOwnDecoder reports whether a schema refers to one of typesWithDecoder.
func hasOwnDecoder(s map[string]any) bool {
	data, _ := json.Marshal(s)
	return slices.ContainsFunc(typesWithDecoder, func(name string) bool { return strings.Contains(string(data), "schemas/"+name+`"`) })
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

// byName replaces the lists of parameters in a document by maps.
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

// shorten returns at most 150 bytes of a value as JSON.
func shorten(v any) string {
	data, _ := json.Marshal(v)
	if len(data) > 150 {
		data = data[:150]
	}
	return string(data)
}
