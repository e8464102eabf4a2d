package writes_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/storage"
)

// patchCases returns the cases of patches, server-side apply included.
func patchCases() []writeCase {
	unavailable := fmt.Errorf("no response: %w", storage.ErrUnavailable)
	return []writeCase{
		{name: "patch", existing: storedConfigMap("a", "0"), do: merge(`{"data":{"b":"1"}}`), want: "a=0 b=1", swaps: 1},
		{name: "patch missing object", do: merge(`{"data":{"b":"1"}}`), code: 404, want: "gone", reads: 1},
		{
			name:     "patch while another client writes",
			existing: storedConfigMap("a", "0"),
			do:       merge(`{"data":{"b":"1"}}`),
			before:   failOnce(overwriteFirst(storedConfigMap("a", "5"))),
			want:     "a=5 b=1",
			swaps:    2,
			dropped:  1,
		},
		{
			name:     "patch at a version while another client writes",
			existing: storedConfigMap("a", "0"),
			do:       merge(`{"metadata":{"resourceVersion":"2"},"data":{"b":"1"}}`),
			before:   failOnce(overwriteFirst(storedConfigMap("a", "5"))),
			code:     409,
			want:     "a=5",
			swaps:    1,
			dropped:  1,
		},
		{
			name:     "patch whose test fails on a state that is not the newest",
			existing: storedConfigMap("a", "0"),
			since:    storedConfigMap("a", "1"),
			do: applyPatch(types.JSONPatchType,
				`[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/b","value":"1"}]`),
			want:  "a=1 b=1",
			swaps: 1,
			reads: 1,
		},
		{
			name:     "patch whose test fails",
			existing: storedConfigMap("a", "0"),
			do:       applyPatch(types.JSONPatchType, `[{"op":"test","path":"/data/a","value":"1"}]`),
			code:     422,
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "patch of the name",
			existing: storedConfigMap("a", "0"),
			do:       merge(`{"metadata":{"name":"d"}}`),
			code:     400,
			message:  "does not match the name on the URL",
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "patch in a dry run",
			dryRun:   true,
			existing: storedConfigMap("a", "0"),
			do:       merge(`{"data":{"b":"1"}}`),
			want:     "a=0",
			reads:    1,
			dropped:  1,
		},
		{
			name:     "patch without response",
			existing: storedConfigMap("a", "0"),
			do:       merge(`{"data":{"b":"1"}}`),
			before:   failWith(unavailable, true),
			code:     500,
			want:     "a=0 b=1",
			swaps:    1,
			unknown:  true,
		},

		{name: "apply missing object", do: applyConfig(`{"a":"1"}`, false), want: "a=1", reads: 1, swaps: 1},
		{
			name:    "apply missing object without permission to create",
			prepare: func(w *fixture) { w.forbidden = true },
			do:      applyConfig(`{"a":"1"}`, false),
			code:    403,
			want:    "gone",
			reads:   1,
		},
		{
			name:    "apply while another client creates it",
			do:      applyConfig(`{"a":"1"}`, false),
			before:  failOnce(overwriteFirst(storedConfigMap("b", "1"))),
			want:    "a=1 b=1",
			reads:   3,
			swaps:   2,
			dropped: 1,
		},
		{
			name:     "apply new field to existing object",
			existing: storedConfigMap("b", "1"),
			do:       applyConfig(`{"a":"1"}`, false),
			want:     "a=1 b=1",
			swaps:    1,
		},
		{
			name:     "apply existing field",
			existing: storedConfigMap("a", "0"),
			do:       applyConfig(`{"a":"1"}`, false),
			code:     409,
			message:  "conflict",
			want:     "a=0",
			reads:    1,
		},
		{name: "apply existing field with force", existing: storedConfigMap("a", "0"), do: applyConfig(`{"a":"1"}`, true), want: "a=1", swaps: 1},
		{
			name:     "apply of another object",
			existing: storedConfigMap(),
			do:       applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"other"}}`),
			code:     422,
			message:  "metadata.uid: Invalid value: \"other\": field is immutable",
			want:     "",
			reads:    1,
			dropped:  1,
		},
		{
			name:     "apply makes object too large",
			existing: storedConfigMap(),
			do: applyPatch(types.ApplyYAMLPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`),
			before:  failWith(storage.ErrTooLarge, false),
			code:    413,
			want:    "",
			swaps:   1,
			dropped: 1,
		},
		{
			name: "apply creates too large object",
			do: applyPatch(types.ApplyYAMLPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`),
			before:  failWith(storage.ErrTooLarge, false),
			code:    413,
			want:    "gone",
			swaps:   1,
			reads:   1,
			dropped: 1,
		},
		{
			name:    "apply with the UID of another object, missing",
			do:      applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"other"}}`),
			code:    409,
			message: "uid mismatch",
			want:    "gone",
			reads:   1,
		},
		{
			name:    "apply without a name with the UID of another object, missing",
			do:      applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"other"}}`),
			code:    409,
			message: "uid mismatch",
			want:    "gone",
			reads:   1,
		},
		{name: "apply in a dry run", dryRun: true, do: applyConfig(`{"a":"1"}`, false), want: "gone", reads: 2, dropped: 1},
	}
}
