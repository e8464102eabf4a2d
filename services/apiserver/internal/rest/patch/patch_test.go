package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/json/jsonpatch"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// TestDecodeRejectsInvalidPatches checks the limits, the errors, and the recorded unknown fields of
// each patch type.
func TestDecodeRejectsInvalidPatches(t *testing.T) {
	operations := func(n int) string {
		return "[" + strings.Repeat(`{"op":"test","path":"/a","value":1},`, n-1) + `{"op":"test","path":"/a","value":1}]`
	}
	for _, test := range []struct {
		name    string
		typ     types.PatchType
		raw     string
		code    int32 // 0: valid
		unknown []string
	}{
		{name: "maximum number of operations", typ: types.JSONPatchType, raw: operations(MaxOperations)},
		{name: "too many operations", typ: types.JSONPatchType, raw: operations(MaxOperations + 1), code: 413},
		{name: "operations that are an object", typ: types.JSONPatchType, raw: `{"op":"test"}`, code: 400},
		{name: "invalid JSON", typ: types.JSONPatchType, raw: `[`, code: 400},
		{
			name:    "an operation with an unknown and a duplicate field",
			typ:     types.JSONPatchType,
			raw:     `[{"op":"add","path":"/a","value":1,"value":2,"why":"x"}]`,
			unknown: []string{`json patch duplicate field "[0].value"`, `json patch unknown field "[0].why"`},
		},
		{
			name:    "a merge patch",
			typ:     types.MergePatchType,
			raw:     `{"a":{"b":1,"b":2}}`,
			unknown: []string{`duplicate field "a.b"`},
		},
		{name: "a merge patch that is a list", typ: types.MergePatchType, raw: `[]`, code: 400},
		{name: "a merge patch that is null", typ: types.MergePatchType, raw: `null`, code: 400},
		{name: "an empty merge patch", typ: types.MergePatchType, raw: ``, code: 400},
		{
			name:    "a strategic patch",
			typ:     types.StrategicMergePatchType,
			raw:     `{"a":1,"a":2}`,
			unknown: []string{`duplicate field "a"`},
		},
		{name: "a strategic patch that is a string", typ: types.StrategicMergePatchType, raw: `"x"`, code: 400},
		{
			name:    "an apply in YAML",
			typ:     types.ApplyYAMLPatchType,
			raw:     "a:\n  b: 1\n  b: 2\n",
			unknown: []string{`error converting YAML to JSON: yaml: unmarshal errors:` + "\n  line 3: key \"b\" already set in map"},
		},
		{name: "an apply in JSON", typ: types.ApplyYAMLPatchType, raw: `{"a":1}`},
		{name: "an apply that is a list", typ: types.ApplyYAMLPatchType, raw: `- a`, code: 400},
		{name: "an empty apply", typ: types.ApplyYAMLPatchType, raw: ``},
		{name: "an apply with invalid YAML", typ: types.ApplyYAMLPatchType, raw: "a: [\n", code: 400},
		{name: "an apply in CBOR", typ: types.ApplyCBORPatchType, raw: "\xa1\x41a\x01"},
		{name: "an apply with invalid CBOR", typ: types.ApplyCBORPatchType, raw: "{}", code: 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			patch, err := Decode(test.typ, []byte(test.raw), true)
			var code int32
			if status, ok := err.(apierrors.APIStatus); ok {
				code = status.Status().Code
			} else if err != nil {
				t.Fatal(err)
			}
			if code != test.code {
				t.Fatalf("got code %d (%v), want %d", code, err, test.code)
			}
			if err != nil {
				return
			}
			var unknown []string
			for _, e := range unknownOf(patch) {
				unknown = append(unknown, e.Error())
			}
			if strings.Join(unknown, "|") != strings.Join(test.unknown, "|") {
				t.Errorf("got unknown %q, want %q", unknown, test.unknown)
			}
		})
	}
}

// unknownOf returns the recorded errors about unknown and duplicate fields.
func unknownOf(patch *Patch) []error {
	switch decoded := patch.strategy.(type) {
	case *jsonPatch:
		return decoded.unknown
	case *mergePatch:
		return decoded.unknown
	case *strategicPatch:
		return decoded.unknown
	case *applyPatch:
		return decoded.unknown
	}
	return nil
}

// TestJSONPatchErrorsNameKubernetesType checks that errors name the Go type that Kubernetes uses for
// JSON patches.
func TestJSONPatchErrorsNameKubernetesType(t *testing.T) {
	for raw, want := range map[string]string{
		`{"op":"test"}`: "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
		`[{"op":1}]`:    "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
	} {
		if _, err := Decode(types.JSONPatchType, []byte(raw), true); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

// TestCopiesAreBounded checks that a JSON patch whose repeated copies grow too much is rejected.
func TestCopiesAreBounded(t *testing.T) {
	var ops []map[string]any
	for i := range 40 {
		ops = append(ops, map[string]any{"op": "copy", "from": "/data", "path": fmt.Sprint("/data/x", i)})
	}
	raw, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := Decode(types.JSONPatchType, raw, true)
	if err != nil {
		t.Fatal(err)
	}
	out, err := decoded.strategy.(*jsonPatch).applyTo([]byte(`{"data":{"a":"` + strings.Repeat("a", 1000) + `"}}`))
	if err == nil || len(out) > jsonpatch.MaxCopies {
		t.Errorf("got %d bytes, error %v, want an error and at most %d bytes", len(out), err, jsonpatch.MaxCopies)
	}
}

// fuzzPatch applies arbitrary input as a patch to a pod. It fails unless the result is a pod or a 4xx
// error.
func fuzzPatch(fuzzer *testing.F, typ types.PatchType) {
	catalog, apiCodec := builtinCodec(fuzzer)
	kind := catalog.Kind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{
			{Name: "a", Image: "a:1", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}},
			{Name: "b", Args: []string{"x"}},
		},
		Volumes: []corev1.Volume{{Name: "v"}}, Tolerations: []corev1.Toleration{{Key: "k"}},
	}}
	pod.Name = "p"
	pod.Labels = map[string]string{"a": "b"}
	pod.Finalizers = []string{"f/a"}
	fuzzer.Fuzz(func(t *testing.T, raw []byte) {
		decoded, err := Decode(typ, raw, true)
		if err == nil {
			err = patchPod(apiCodec, kind, decoded, pod)
		}
		if status, ok := err.(apierrors.APIStatus); err != nil && (!ok || status.Status().Code < 400 || status.Status().Code >= 500) {
			t.Fatalf("%q: got %v, want a 4xx error", raw, err)
		}
	})
}

// patchPod applies a patch. If it is a merge patch that mergeObject supports, patchPod also returns an
// error if the result differs from the result of mergeDocument.
func patchPod(apiCodec *codec.Codec, kind *registry.Kind, patch *Patch, pod *corev1.Pod) error {
	obj, err := patch.Apply(context.Background(), newTarget(apiCodec, kind, pod))
	merged, ok := patch.strategy.(*mergePatch)
	if !ok || !merged.doc.Clean() {
		return err
	}
	direct, ok := mergeObject(pod, merged.doc)
	if !ok {
		return err
	}
	byDocument, docErr := newTarget(apiCodec, kind, pod).changeJSON(context.Background(), nil, request.WeightOfJSON, merged.applyTo)
	if docErr != nil {
		return fmt.Errorf("merged directly, but not by the document: %w", docErr)
	}
	for _, got := range []registry.Object{obj, byDocument} {
		directJSON, err := apiCodec.ForKind(kind).EncodeObject(direct)
		if err != nil {
			return err
		}
		gotJSON, err := apiCodec.ForKind(kind).EncodeObject(got)
		if err != nil {
			return err
		}
		if string(directJSON) != string(gotJSON) {
			return fmt.Errorf("merged directly: %s, by the document: %s", directJSON, gotJSON)
		}
	}
	return nil
}

// FuzzJSONPatch checks JSON patches; see fuzzPatch.
func FuzzJSONPatch(fuzzer *testing.F) {
	fuzzer.Add([]byte(`[{"op":"test","path":"/metadata/name","value":"p"},{"op":"add","path":"/spec/containers/-","value":{"name":"c"}}]`))
	fuzzer.Add([]byte(`[{"op":"move","from":"/spec/containers/0","path":"/spec/containers/1"},{"op":"copy","from":"/spec","path":"/metadata/labels/x"},{"op":"remove","path":"/spec/volumes"}]`))
	fuzzer.Add([]byte(`[{"op":"replace","path":"","value":{}}]`))
	fuzzPatch(fuzzer, types.JSONPatchType)
}

// FuzzMergePatch checks merge patches; see fuzzPatch.
func FuzzMergePatch(fuzzer *testing.F) {
	fuzzer.Add([]byte(`{"metadata":{"labels":{"a":null,"c":"d"}},"spec":{"nodeName":"n","containers":[{"name":"x"}],"securityContext":{"runAsUser":1}}}`))
	fuzzer.Add([]byte(`{"spec":null,"status":{"conditions":[null]}}`))
	fuzzPatch(fuzzer, types.MergePatchType)
}

// FuzzStrategicPatch checks strategic merge patches; see fuzzPatch.
func FuzzStrategicPatch(fuzzer *testing.F) {
	fuzzer.Add([]byte(`{"spec":{"containers":[{"name":"a","$patch":"delete"},{"name":"b","args":["y"]}],"$setElementOrder/containers":[{"name":"b"}]}}`))
	fuzzer.Add([]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["f/a"],"labels":{"$patch":"replace"}},"spec":{"volumes":[{"name":"v","$retainKeys":["name"]}],"$retainKeys":["containers"]}}`))
	fuzzer.Add([]byte(`{"$patch":"delete"}`))
	fuzzPatch(fuzzer, types.StrategicMergePatchType)
}

// FuzzApplyPatch checks that any body is decoded to an object or rejected with 400.
func FuzzApplyPatch(fuzzer *testing.F) {
	fuzzer.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"))
	fuzzer.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"a"}]}}`))
	fuzzer.Fuzz(func(t *testing.T, raw []byte) {
		decoded, err := Decode(types.ApplyYAMLPatchType, raw, true)
		if err == nil && decoded.strategy.(*applyPatch).tree == nil {
			t.Fatalf("%q: got a patch without an object, want one", raw)
		}
		if err != nil && !apierrors.IsBadRequest(err) {
			t.Fatalf("%q: got %v, want BadRequest", raw, err)
		}
	})
}
