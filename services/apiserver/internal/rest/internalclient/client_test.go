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

// script is a Doer with prepared results. It repeats the last result of a verb, and records calls.
type script struct {
	answers map[internalclient.Verb][]error
	asked   []internalclient.Verb
}

func (s *script) Do(_ context.Context, c internalclient.Call, _ any) error {
	s.asked = append(s.asked, c.Verb)
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
	there := apierrors.NewAlreadyExists(corev1.Resource("secrets"), "s")
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
		do      func(context.Context, *internalclient.Client) error
		answers answers
		asked   []internalclient.Verb
		err     error
	}{
		"replaced":      {put, nil, []internalclient.Verb{get, update}, nil},
		"nothing to do": {same, nil, []internalclient.Verb{get}, nil},
		"unreadable":    {put, answers{get: {odd}}, []internalclient.Verb{get}, odd},
		"created":       {put, answers{get: {none}}, []internalclient.Verb{get, create}, nil},
		"created by another": {put, answers{get: {none, nil}, create: {there}},
			[]internalclient.Verb{get, create, get, update}, nil},
		"replaced by another":       {put, answers{update: {conflict, nil}}, []internalclient.Verb{get, update, get, update}, nil},
		"refused":                   {put, answers{update: {odd}}, []internalclient.Verb{get, update}, odd},
		"ensured":                   {ensure, nil, []internalclient.Verb{get}, nil},
		"ensured, as it is missing": {ensure, answers{get: {none}}, []internalclient.Verb{get, create}, nil},
		"ensured by another":        {ensure, answers{get: {none}, create: {there}}, []internalclient.Verb{get, create}, nil},
		"not ensured":               {ensure, answers{get: {none}, create: {odd}}, []internalclient.Verb{get, create}, odd},
		"labelled":                  {label, nil, []internalclient.Verb{get, update}, nil},
		"labelled already":          {labelled, nil, []internalclient.Verb{get}, nil},
		"no secret":                 {label, answers{get: {none}}, []internalclient.Verb{get}, none},
		"changed by another":        {label, answers{update: {conflict, nil}}, []internalclient.Verb{get, update, get, update}, nil},
		"not labelled":              {label, answers{update: {odd}}, []internalclient.Verb{get, update}, odd},
	} {
		s := &script{answers: c.answers}
		if err := c.do(t.Context(), &internalclient.Client{Doer: s}); !errors.Is(err, c.err) || !slices.Equal(s.asked, c.asked) {
			t.Errorf("%s: got %v, calls %v; want %v, %v", name, err, s.asked, c.err, c.asked)
		}
	}
	for name, do := range map[string]func(context.Context, *internalclient.Client) error{"put": put, "label": label} {
		s := &script{answers: answers{update: {conflict}}}
		if err := do(t.Context(), &internalclient.Client{Doer: s}); err == nil || len(s.asked) != 10 {
			t.Errorf("%s: got %v after calls %s", name, err, fmt.Sprint(s.asked))
		}
	}
}
