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
		{
			name:       "patch",
			existing:   storedConfigMap("a", "0"),
			write:      mergePatch(`{"data":{"b":"1"}}`),
			wantStored: "a=0 b=1",
			wantSwaps:  1,
		},
		{name: "patch missing object", write: mergePatch(`{"data":{"b":"1"}}`), wantCode: 404, wantStored: "gone", wantReads: 1},
		{
			name:          "patch while another client writes",
			existing:      storedConfigMap("a", "0"),
			write:         mergePatch(`{"data":{"b":"1"}}`),
			beforeSwap:    beforeFirstSwap(overwriteWith(storedConfigMap("a", "5"))),
			wantStored:    "a=5 b=1",
			wantSwaps:     2,
			wantRollbacks: 1,
		},
		{
			name:          "patch at a version while another client writes",
			existing:      storedConfigMap("a", "0"),
			write:         mergePatch(`{"metadata":{"resourceVersion":"2"},"data":{"b":"1"}}`),
			beforeSwap:    beforeFirstSwap(overwriteWith(storedConfigMap("a", "5"))),
			wantCode:      409,
			wantStored:    "a=5",
			wantSwaps:     1,
			wantRollbacks: 1,
		},
		{
			name:     "patch whose test fails on a state that is not the newest",
			existing: storedConfigMap("a", "0"),
			uncached: storedConfigMap("a", "1"),
			write: applyPatch(types.JSONPatchType,
				`[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/b","value":"1"}]`),
			wantStored: "a=1 b=1",
			wantSwaps:  1,
			wantReads:  1,
		},
		{
			name:       "patch whose test fails",
			existing:   storedConfigMap("a", "0"),
			write:      applyPatch(types.JSONPatchType, `[{"op":"test","path":"/data/a","value":"1"}]`),
			wantCode:   422,
			wantStored: "a=0",
			wantReads:  1,
		},
		{
			name:        "patch of the name",
			existing:    storedConfigMap("a", "0"),
			write:       mergePatch(`{"metadata":{"name":"d"}}`),
			wantCode:    400,
			wantMessage: "does not match the name on the URL",
			wantStored:  "a=0",
			wantReads:   1,
		},
		{
			name:          "patch in a dry run",
			dryRun:        true,
			existing:      storedConfigMap("a", "0"),
			write:         mergePatch(`{"data":{"b":"1"}}`),
			wantStored:    "a=0",
			wantReads:     1,
			wantRollbacks: 1,
		},
		{
			name:           "patch without response",
			existing:       storedConfigMap("a", "0"),
			write:          mergePatch(`{"data":{"b":"1"}}`),
			beforeSwap:     failAfterApplying(unavailable),
			wantCode:       500,
			wantStored:     "a=0 b=1",
			wantSwaps:      1,
			outcomeUnknown: true,
		},

		{name: "apply missing object", write: applyConfig(`{"a":"1"}`), wantStored: "a=1", wantReads: 1, wantSwaps: 1},
		{
			name:       "apply missing object without permission to create",
			setup:      func(f *fixture) { f.forbidden = true },
			write:      applyConfig(`{"a":"1"}`),
			wantCode:   403,
			wantStored: "gone",
			wantReads:  1,
		},
		{
			name:          "apply while another client creates it",
			write:         applyConfig(`{"a":"1"}`),
			beforeSwap:    beforeFirstSwap(overwriteWith(storedConfigMap("b", "1"))),
			wantStored:    "a=1 b=1",
			wantReads:     3,
			wantSwaps:     2,
			wantRollbacks: 1,
		},
		{
			name:       "apply new field to existing object",
			existing:   storedConfigMap("b", "1"),
			write:      applyConfig(`{"a":"1"}`),
			wantStored: "a=1 b=1",
			wantSwaps:  1,
		},
		{
			name:        "apply existing field",
			existing:    storedConfigMap("a", "0"),
			write:       applyConfig(`{"a":"1"}`),
			wantCode:    409,
			wantMessage: "conflict",
			wantStored:  "a=0",
			wantReads:   1,
		},
		{
			name:       "apply existing field with force",
			existing:   storedConfigMap("a", "0"),
			write:      forceApplyConfig(`{"a":"1"}`),
			wantStored: "a=1",
			wantSwaps:  1,
		},
		{
			name:     "apply of another object",
			existing: storedConfigMap(),
			write: applyPatch(
				types.ApplyYAMLPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"other"}}`,
			),
			wantCode:      422,
			wantMessage:   "metadata.uid: Invalid value: \"other\": field is immutable",
			wantStored:    "",
			wantReads:     1,
			wantRollbacks: 1,
		},
		{
			name:     "apply makes object too large",
			existing: storedConfigMap(),
			write: applyPatch(types.ApplyYAMLPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`),
			beforeSwap:    failWithoutApplying(storage.ErrTooLarge),
			wantCode:      413,
			wantStored:    "",
			wantSwaps:     1,
			wantRollbacks: 1,
		},
		{
			name: "apply creates too large object",
			write: applyPatch(types.ApplyYAMLPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`),
			beforeSwap:    failWithoutApplying(storage.ErrTooLarge),
			wantCode:      413,
			wantStored:    "gone",
			wantSwaps:     1,
			wantReads:     1,
			wantRollbacks: 1,
		},
		{
			name: "apply with the UID of another object, missing",
			write: applyPatch(
				types.ApplyYAMLPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"other"}}`,
			),
			wantCode:    409,
			wantMessage: "uid mismatch",
			wantStored:  "gone",
			wantReads:   1,
		},
		{
			name:        "apply without a name with the UID of another object, missing",
			write:       applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"other"}}`),
			wantCode:    409,
			wantMessage: "uid mismatch",
			wantStored:  "gone",
			wantReads:   1,
		},
		{name: "apply in a dry run", dryRun: true, write: applyConfig(`{"a":"1"}`), wantStored: "gone", wantReads: 2, wantRollbacks: 1},
	}
}
