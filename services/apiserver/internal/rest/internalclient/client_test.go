package internalclient_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// script is a Doer with prepared results. It repeats the last result of a verb, and records calls.
type script struct {
	results map[internalclient.Verb][]error
	verbs   []internalclient.Verb
}

func (s *script) Do(_ context.Context, call internalclient.Call, _ any) error {
	s.verbs = append(s.verbs, call.Verb)
	results := s.results[call.Verb]
	if len(results) == 0 {
		return nil
	}
	if len(results) > 1 {
		s.results[call.Verb] = results[1:]
	}
	return results[0]
}

// TestConflictsAreRetried checks that the client retries conflicts a few times, and returns other
// errors at once.
func TestConflictsAreRetried(t *testing.T) {
	const get, create, update = internalclient.Get, internalclient.Create, internalclient.Update
	secrets := internalclient.Collection("", "v1", "secrets", "ns")
	notFound := apierrors.NewNotFound(corev1.Resource("secrets"), "s")
	alreadyExists := apierrors.NewAlreadyExists(corev1.Resource("secrets"), "s")
	conflict := apierrors.NewConflict(corev1.Resource("secrets"), "s", errors.New("x"))
	otherErr := errors.New("other")
	put := func(ctx context.Context, c *internalclient.Client) error {
		return internalclient.Put(ctx, c, secrets, &corev1.Secret{}, func(*corev1.Secret) bool { return true })
	}
	putUnchanged := func(ctx context.Context, c *internalclient.Client) error {
		return internalclient.Put(ctx, c, secrets, &corev1.Secret{}, func(*corev1.Secret) bool { return false })
	}
	ensure := func(ctx context.Context, c *internalclient.Client) error {
		return c.Ensure(ctx, secrets, &corev1.Secret{})
	}
	label := func(ctx context.Context, c *internalclient.Client) error {
		return c.LabelSecret(ctx, "ns", "s", "l", "v")
	}
	labelUnchanged := func(ctx context.Context, c *internalclient.Client) error {
		return c.LabelSecret(ctx, "ns", "s", "l", "")
	}
	type results = map[internalclient.Verb][]error
	for name, test := range map[string]struct {
		do        func(context.Context, *internalclient.Client) error
		results   results
		wantVerbs []internalclient.Verb
		err       error
	}{
		"put updates an existing object": {do: put, wantVerbs: []internalclient.Verb{get, update}},
		"put without a change":           {do: putUnchanged, wantVerbs: []internalclient.Verb{get}},
		"put of an unreadable object":    {do: put, results: results{get: {otherErr}}, wantVerbs: []internalclient.Verb{get}, err: otherErr},
		"put creates a missing object":   {do: put, results: results{get: {notFound}}, wantVerbs: []internalclient.Verb{get, create}},
		"put while another client creates the object": {
			do:        put,
			results:   results{get: {notFound, nil}, create: {alreadyExists}},
			wantVerbs: []internalclient.Verb{get, create, get, update},
		},
		"put while another client updates the object": {
			do:        put,
			results:   results{update: {conflict, nil}},
			wantVerbs: []internalclient.Verb{get, update, get, update},
		},
		"put is rejected": {
			do:        put,
			results:   results{update: {otherErr}},
			wantVerbs: []internalclient.Verb{get, update},
			err:       otherErr,
		},
		"ensure finds the object":         {do: ensure, wantVerbs: []internalclient.Verb{get}},
		"ensure creates a missing object": {do: ensure, results: results{get: {notFound}}, wantVerbs: []internalclient.Verb{get, create}},
		"ensure while another client creates the object": {
			do:        ensure,
			results:   results{get: {notFound}, create: {alreadyExists}},
			wantVerbs: []internalclient.Verb{get, create},
		},
		"ensure is rejected": {
			do:        ensure,
			results:   results{get: {notFound}, create: {otherErr}},
			wantVerbs: []internalclient.Verb{get, create},
			err:       otherErr,
		},
		"label a secret":            {do: label, wantVerbs: []internalclient.Verb{get, update}},
		"secret has the label":      {do: labelUnchanged, wantVerbs: []internalclient.Verb{get}},
		"label of a missing secret": {do: label, results: results{get: {notFound}}, wantVerbs: []internalclient.Verb{get}, err: notFound},
		"label while another client updates the secret": {
			do:        label,
			results:   results{update: {conflict, nil}},
			wantVerbs: []internalclient.Verb{get, update, get, update},
		},
		"label is rejected": {
			do:        label,
			results:   results{update: {otherErr}},
			wantVerbs: []internalclient.Verb{get, update},
			err:       otherErr,
		},
	} {
		s := &script{results: test.results}
		if err := test.do(t.Context(), &internalclient.Client{Doer: s}); !errors.Is(err, test.err) || !slices.Equal(s.verbs, test.wantVerbs) {
			t.Errorf("%s: got error %v, calls %v; want error %v, calls %v", name, err, s.verbs, test.err, test.wantVerbs)
		}
	}
	// Each of five attempts reads and updates the object.
	const wantCalls = 2 * 5
	for name, do := range map[string]func(context.Context, *internalclient.Client) error{"put": put, "label": label} {
		s := &script{results: results{update: {conflict}}}
		if err := do(t.Context(), &internalclient.Client{Doer: s}); err == nil || len(s.verbs) != wantCalls {
			t.Errorf("%s with endless conflicts: got error %v after calls %s, want an error after %d", name, err, s.verbs, wantCalls)
		}
	}
}
