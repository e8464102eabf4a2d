package writes_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/storage"
)

// createCases returns the cases of creations.
func createCases() []writeCase {
	unavailable := fmt.Errorf("no response: %w", storage.ErrUnavailable)
	return []writeCase{
		{name: "create", do: create(sentConfigMap("a", "1")), want: "a=1", swaps: 1},
		{
			name:     "create existing object",
			existing: storedConfigMap("a", "0"),
			do:       create(sentConfigMap("a", "1")),
			code:     409,
			message:  "already exists",
			want:     "a=0",
			swaps:    1,
			dropped:  1,
			reads:    1,
		},
		{
			name:     "create terminating object",
			existing: markDeleted(withFinalizers(storedConfigMap(), "a/b")),
			do:       create(sentConfigMap()),
			code:     409,
			message:  `object is being deleted: configmaps "c" already exists`,
			want:     "marked a/b",
			swaps:    1,
			dropped:  1,
			reads:    1,
		},
		{
			name:    "create while another client creates it",
			do:      create(sentConfigMap("a", "1")),
			before:  failOnce(overwriteFirst(storedConfigMap("a", "0"))),
			code:    409,
			message: "already exists",
			want:    "a=0",
			swaps:   1,
			dropped: 1,
			reads:   1,
		},
		{
			name:    "create with a version",
			do:      create(atVersion(sentConfigMap(), "5")),
			code:    400,
			message: "resourceVersion should not be set on objects to be created",
			want:    "gone",
			dropped: 1,
		},
		{
			name:     "create existing object with a version",
			existing: storedConfigMap("a", "0"),
			do:       create(atVersion(sentConfigMap(), "5")),
			code:     400,
			want:     "a=0",
			dropped:  1,
		},
		{
			name:    "create rejected by admission with a version",
			prepare: rejectAll,
			do:      create(atVersion(sentConfigMap(), "5")),
			code:    403,
			want:    "gone",
			dropped: 1,
		},
		{name: "create with the version 0", do: create(atVersion(sentConfigMap("a", "1"), "0")), want: "a=1", swaps: 1},
		{name: "create with a version that is not a number", do: create(atVersion(sentConfigMap("a", "1"), "x")), want: "a=1", swaps: 1},
		{
			name: "create with another namespace",
			do:   create(func() *corev1.ConfigMap { c := sentConfigMap(); c.Namespace = "other"; return c }()),
			code: 400,
			want: "gone",
		},
		{
			name:    "create invalid object",
			do:      create(func() *corev1.ConfigMap { c := sentConfigMap(); c.Name = "C"; return c }()),
			code:    422,
			want:    "gone",
			dropped: 1,
		},
		{
			name:    "create with a generated name that exists",
			do:      create(generateName(sentConfigMap())),
			before:  failOnce(takeName),
			want:    "gone",
			swaps:   2,
			dropped: 1,
		},
		{
			name:    "create with generated names that all exist",
			do:      create(generateName(sentConfigMap())),
			before:  failAlways(func(w *fixture, _ int, key string) { takeName(w, key) }),
			code:    409,
			message: "was not able to generate a unique name",
			want:    "gone",
			swaps:   8,
			dropped: 8,
			reads:   1,
		},
		{name: "create in a dry run", dryRun: true, do: create(sentConfigMap()), want: "gone", reads: 1, dropped: 1},
		{
			name:     "create existing object in a dry run",
			dryRun:   true,
			existing: storedConfigMap("a", "0"),
			do:       create(sentConfigMap()),
			code:     409,
			want:     "a=0",
			dropped:  1,
			reads:    2,
		},
		{name: "create rejected by admission", prepare: rejectAll, do: create(sentConfigMap()), code: 403, want: "gone", dropped: 1},
		{
			name:    "create rejected by mutation",
			prepare: func(w *fixture) { w.mutate = func(*admission.Request) error { return errors.New("no") } },
			do:      create(sentConfigMap()),
			code:    500,
			want:    "gone",
		},
		{
			name:    "create too large",
			do:      create(sentConfigMap("a", "1")),
			before:  failWith(storage.ErrTooLarge, false),
			code:    413,
			want:    "gone",
			swaps:   2,
			dropped: 1,
		},
		{
			name: "create too large with managed fields",
			do:   create(sentConfigMap("a", "1")),
			before: func(_ *fixture, n int, _ string) (bool, error) {
				if n == 1 {
					return false, storage.ErrTooLarge
				}
				return false, nil
			},
			want:  "a=1",
			swaps: 2,
		},
		{
			name:    "create without response, applied",
			do:      create(sentConfigMap("a", "1")),
			before:  failWith(unavailable, true),
			code:    500,
			want:    "a=1",
			swaps:   1,
			unknown: true,
		},
		{
			name:    "create without response, not applied",
			do:      create(sentConfigMap("a", "1")),
			before:  failWith(context.DeadlineExceeded, false),
			code:    504,
			want:    "gone",
			swaps:   1,
			unknown: true,
		},
	}
}
