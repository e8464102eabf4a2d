package internalclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// script is a door that returns prepared results and records the verbs. The last result of a verb
// repeats.
type script struct {
	results map[internalclient.Verb][]error
	calls   []internalclient.Verb
}

func (s *script) Do(_ context.Context, c internalclient.Call, _ any) error {
	s.calls = append(s.calls, c.Verb)
	all := s.results[c.Verb]
	if len(all) == 0 {
		return nil
	}
	if len(all) > 1 {
		s.results[c.Verb] = all[1:]
	}
	return all[0]
}

// TestConflictsAreRetried checks that conflicts with other writers are retried a few times and
// other errors are returned.
func TestConflictsAreRetried(t *testing.T) {
	const get, create, update = internalclient.Get, internalclient.Create, internalclient.Update
	at := internalclient.Of("", "v1", "secrets", "ns")
	none, exists := apierrors.NewNotFound(corev1.Resource("secrets"), "s"), apierrors.NewAlreadyExists(corev1.Resource("secrets"), "s")
	conflict, odd := apierrors.NewConflict(corev1.Resource("secrets"), "s", errors.New("x")), errors.New("odd")
	put := func(ctx context.Context, c *internalclient.Client) error {
		return internalclient.Put(ctx, c, at, &corev1.Secret{}, func(*corev1.Secret) bool { return true })
	}
	same := func(ctx context.Context, c *internalclient.Client) error {
		return internalclient.Put(ctx, c, at, &corev1.Secret{}, func(*corev1.Secret) bool { return false })
	}
	ensure := func(ctx context.Context, c *internalclient.Client) error { return c.Ensure(ctx, at, &corev1.Secret{}) }
	label := func(ctx context.Context, c *internalclient.Client) error {
		return c.LabelSecret(ctx, "ns", "s", "l", "v")
	}
	labelled := func(ctx context.Context, c *internalclient.Client) error {
		return c.LabelSecret(ctx, "ns", "s", "l", "")
	}
	type results = map[internalclient.Verb][]error
	for name, c := range map[string]struct {
		do      func(context.Context, *internalclient.Client) error
		results results
		calls   []internalclient.Verb
		err     error
	}{
		"replaced":              {put, nil, []internalclient.Verb{get, update}, nil},
		"nothing to do":         {same, nil, []internalclient.Verb{get}, nil},
		"unreadable":            {put, results{get: {odd}}, []internalclient.Verb{get}, odd},
		"created":               {put, results{get: {none}}, []internalclient.Verb{get, create}, nil},
		"created concurrently":  {put, results{get: {none, nil}, create: {exists}}, []internalclient.Verb{get, create, get, update}, nil},
		"replaced concurrently": {put, results{update: {conflict, nil}}, []internalclient.Verb{get, update, get, update}, nil},
		"rejected":              {put, results{update: {odd}}, []internalclient.Verb{get, update}, odd},
		"ensured":               {ensure, nil, []internalclient.Verb{get}, nil},
		"created by Ensure":     {ensure, results{get: {none}}, []internalclient.Verb{get, create}, nil},
		"ensured concurrently":  {ensure, results{get: {none}, create: {exists}}, []internalclient.Verb{get, create}, nil},
		"not ensured":           {ensure, results{get: {none}, create: {odd}}, []internalclient.Verb{get, create}, odd},
		"labelled":              {label, nil, []internalclient.Verb{get, update}, nil},
		"labelled already":      {labelled, nil, []internalclient.Verb{get}, nil},
		"no secret":             {label, results{get: {none}}, []internalclient.Verb{get}, none},
		"changed concurrently":  {label, results{update: {conflict, nil}}, []internalclient.Verb{get, update, get, update}, nil},
		"not labelled":          {label, results{update: {odd}}, []internalclient.Verb{get, update}, odd},
	} {
		s := &script{results: c.results}
		if err := c.do(t.Context(), &internalclient.Client{Door: s}); !errors.Is(err, c.err) || !slices.Equal(s.calls, c.calls) {
			t.Errorf("%s: got %v after %v, want %v after %v", name, err, s.calls, c.err, c.calls)
		}
	}
	for name, do := range map[string]func(context.Context, *internalclient.Client) error{"put": put, "label": label} {
		s := &script{results: results{update: {conflict}}}
		if err := do(t.Context(), &internalclient.Client{Door: s}); err == nil || len(s.calls) != 10 {
			t.Errorf("%s: got %v after %s, want an error after 10 calls", name, err, fmt.Sprint(s.calls))
		}
	}
}
