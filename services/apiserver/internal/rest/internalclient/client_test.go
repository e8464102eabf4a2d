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
	answers map[internalclient.Verb][]error
	verbs   []internalclient.Verb
}

func (s *script) Do(_ context.Context, c internalclient.Call, _ any) error {
	s.verbs = append(s.verbs, c.Verb)
	all := s.answers[c.Verb]
	if len(all) == 0 {
		return nil
	}
	if len(all) > 1 {
		s.answers[c.Verb] = all[1:]
	}
	return all[0]
}

// TestConflictsAreRetried checks that the client retries conflicts a few times, and returns other
// errors at once.
func TestConflictsAreRetried(t *testing.T) {
	const get, create, update = internalclient.Get, internalclient.Create, internalclient.Update
	at := internalclient.Collection("", "v1", "secrets", "ns")
	none := apierrors.NewNotFound(corev1.Resource("secrets"), "s")
	alreadyExists := apierrors.NewAlreadyExists(corev1.Resource("secrets"), "s")
	conflict := apierrors.NewConflict(corev1.Resource("secrets"), "s", errors.New("x"))
	odd := errors.New("odd")
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
	type answers = map[internalclient.Verb][]error
	for name, c := range map[string]struct {
		do        func(context.Context, *internalclient.Client) error
		answers   answers
		wantVerbs []internalclient.Verb
		err       error
	}{
		"replaced":                 {do: put, wantVerbs: []internalclient.Verb{get, update}},
		"change reports no update": {do: same, wantVerbs: []internalclient.Verb{get}},
		"unreadable":               {do: put, answers: answers{get: {odd}}, wantVerbs: []internalclient.Verb{get}, err: odd},
		"created":                  {do: put, answers: answers{get: {none}}, wantVerbs: []internalclient.Verb{get, create}},
		"created by another": {
			do:        put,
			answers:   answers{get: {none, nil}, create: {alreadyExists}},
			wantVerbs: []internalclient.Verb{get, create, get, update},
		},
		"replaced by another": {
			do:        put,
			answers:   answers{update: {conflict, nil}},
			wantVerbs: []internalclient.Verb{get, update, get, update},
		},
		"rejected": {
			do:        put,
			answers:   answers{update: {odd}},
			wantVerbs: []internalclient.Verb{get, update},
			err:       odd,
		},
		"ensured":                         {do: ensure, wantVerbs: []internalclient.Verb{get}},
		"ensure creates a missing object": {do: ensure, answers: answers{get: {none}}, wantVerbs: []internalclient.Verb{get, create}},
		"ensure finds that another client created it": {
			do:        ensure,
			answers:   answers{get: {none}, create: {alreadyExists}},
			wantVerbs: []internalclient.Verb{get, create},
		},
		"ensure fails": {
			do:        ensure,
			answers:   answers{get: {none}, create: {odd}},
			wantVerbs: []internalclient.Verb{get, create},
			err:       odd,
		},
		"labelled":                  {do: label, wantVerbs: []internalclient.Verb{get, update}},
		"labelled already":          {do: labelled, wantVerbs: []internalclient.Verb{get}},
		"label of a missing secret": {do: label, answers: answers{get: {none}}, wantVerbs: []internalclient.Verb{get}, err: none},
		"changed by another": {
			do:        label,
			answers:   answers{update: {conflict, nil}},
			wantVerbs: []internalclient.Verb{get, update, get, update},
		},
		"label fails": {
			do:        label,
			answers:   answers{update: {odd}},
			wantVerbs: []internalclient.Verb{get, update},
			err:       odd,
		},
	} {
		s := &script{answers: c.answers}
		if err := c.do(t.Context(), &internalclient.Client{Doer: s}); !errors.Is(err, c.err) || !slices.Equal(s.verbs, c.wantVerbs) {
			t.Errorf("%s: got %v, calls %v; want %v, %v", name, err, s.verbs, c.err, c.wantVerbs)
		}
	}
	for name, do := range map[string]func(context.Context, *internalclient.Client) error{"put": put, "label": label} {
		s := &script{answers: answers{update: {conflict}}}
		if err := do(t.Context(), &internalclient.Client{Doer: s}); err == nil || len(s.verbs) != 10 {
			t.Errorf("%s: got error %v after calls %s, want an error after 10", name, err, s.verbs)
		}
	}
}
