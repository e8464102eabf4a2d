package writes_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/storage"
)

// createCases returns the cases of creations. See writeCase for the values of wantStored and the counts
// of swaps, rollbacks and reads.
func createCases() []writeCase {
	unavailable := fmt.Errorf("no response: %w", storage.ErrUnavailable)
	return []writeCase{
		{name: "create", write: create(sentConfigMap("a", "1")), wantStored: "a=1", wantSwaps: 1},
		{
			name:          "create existing object",
			existing:      storedConfigMap("a", "0"),
			write:         create(sentConfigMap("a", "1")),
			wantCode:      409,
			wantMessage:   "already exists",
			wantStored:    "a=0",
			wantSwaps:     1,
			wantRollbacks: 1,
			wantReads:     1,
		},
		{
			name:          "create terminating object",
			existing:      markDeleted(withFinalizers(storedConfigMap(), "a/b")),
			write:         create(sentConfigMap()),
			wantCode:      409,
			wantMessage:   `object is being deleted: configmaps "c" already exists`,
			wantStored:    "marked a/b",
			wantSwaps:     1,
			wantRollbacks: 1,
			wantReads:     1,
		},
		{
			name:          "create while another client creates it",
			write:         create(sentConfigMap("a", "1")),
			beforeSwap:    beforeFirstSwap(overwriteWith(storedConfigMap("a", "0"))),
			wantCode:      409,
			wantMessage:   "already exists",
			wantStored:    "a=0",
			wantSwaps:     1,
			wantRollbacks: 1,
			wantReads:     1,
		},
		{
			name:          "create with a version",
			write:         create(atVersion(sentConfigMap(), "5")),
			wantCode:      400,
			wantMessage:   "resourceVersion should not be set on objects to be created",
			wantStored:    "gone",
			wantRollbacks: 1,
		},
		{
			name:          "create existing object with a version",
			existing:      storedConfigMap("a", "0"),
			write:         create(atVersion(sentConfigMap(), "5")),
			wantCode:      400,
			wantStored:    "a=0",
			wantRollbacks: 1,
		},
		{
			name:          "create rejected by admission with a version",
			setup:         rejectAll,
			write:         create(atVersion(sentConfigMap(), "5")),
			wantCode:      403,
			wantStored:    "gone",
			wantRollbacks: 1,
		},
		{name: "create with the version 0", write: create(atVersion(sentConfigMap("a", "1"), "0")), wantStored: "a=1", wantSwaps: 1},
		{
			name:       "create with a version that is not a number",
			write:      create(atVersion(sentConfigMap("a", "1"), "x")),
			wantStored: "a=1",
			wantSwaps:  1,
		},
		{
			name:       "create with another namespace",
			write:      create(func() *corev1.ConfigMap { config := sentConfigMap(); config.Namespace = "other"; return config }()),
			wantCode:   400,
			wantStored: "gone",
		},
		{
			name:          "create invalid object",
			write:         create(func() *corev1.ConfigMap { config := sentConfigMap(); config.Name = "C"; return config }()),
			wantCode:      422,
			wantStored:    "gone",
			wantRollbacks: 1,
		},
		{
			name:          "create with a generated name that exists",
			write:         create(generateName(sentConfigMap())),
			beforeSwap:    beforeFirstSwap(createSameName),
			wantStored:    "gone",
			wantSwaps:     2,
			wantRollbacks: 1,
		},
		{
			name:          "create with generated names that all exist",
			write:         create(generateName(sentConfigMap())),
			beforeSwap:    beforeEverySwap(func(f *fixture, _ int, key string) { createSameName(f, key) }),
			wantCode:      409,
			wantMessage:   "was not able to generate a unique name",
			wantStored:    "gone",
			wantSwaps:     8,
			wantRollbacks: 8,
			wantReads:     1,
		},
		{name: "create in a dry run", dryRun: true, write: create(sentConfigMap()), wantStored: "gone", wantReads: 1, wantRollbacks: 1},
		{
			name:          "create existing object in a dry run",
			dryRun:        true,
			existing:      storedConfigMap("a", "0"),
			write:         create(sentConfigMap()),
			wantCode:      409,
			wantStored:    "a=0",
			wantRollbacks: 1,
			wantReads:     2,
		},
		{
			name:          "create rejected by admission",
			setup:         rejectAll,
			write:         create(sentConfigMap()),
			wantCode:      403,
			wantStored:    "gone",
			wantRollbacks: 1,
		},
		{
			name:       "create rejected by mutation",
			setup:      func(f *fixture) { f.mutate = func(*admission.Request) error { return errors.New("no") } },
			write:      create(sentConfigMap()),
			wantCode:   500,
			wantStored: "gone",
		},
		{
			name:          "create too large",
			write:         create(sentConfigMap("a", "1")),
			beforeSwap:    failWithoutApplying(storage.ErrTooLarge),
			wantCode:      413,
			wantStored:    "gone",
			wantSwaps:     2,
			wantRollbacks: 1,
		},
		{
			name:  "create too large with managed fields",
			write: create(sentConfigMap("a", "1")),
			beforeSwap: func(_ *fixture, n int, _ string) (bool, error) {
				if n == 1 {
					return false, storage.ErrTooLarge
				}
				return false, nil
			},
			wantStored: "a=1",
			wantSwaps:  2,
		},
		{
			name:           "create without response, applied",
			write:          create(sentConfigMap("a", "1")),
			beforeSwap:     failAfterApplying(unavailable),
			wantCode:       500,
			wantStored:     "a=1",
			wantSwaps:      1,
			outcomeUnknown: true,
		},
		{
			name:           "create without response, not applied",
			write:          create(sentConfigMap("a", "1")),
			beforeSwap:     failWithoutApplying(context.DeadlineExceeded),
			wantCode:       504,
			wantStored:     "gone",
			wantSwaps:      1,
			outcomeUnknown: true,
		},
	}
}
