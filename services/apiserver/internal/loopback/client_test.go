package loopback_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/loopback"
)

// script is a door that answers as it is told, the last answer for ever, and notes what it is asked.
type script struct {
	answers map[loopback.Verb][]error
	asked   []loopback.Verb
}

func (s *script) Do(_ context.Context, c loopback.Call, _ any) error {
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

// TestWhatIsTriedAgain is what others were faster with, a few times; other failures are told at once.
func TestWhatIsTriedAgain(t *testing.T) {
	const get, create, update = loopback.Get, loopback.Create, loopback.Update
	at := loopback.Of("", "v1", "secrets", "ns")
	none, there := apierrors.NewNotFound(corev1.Resource("secrets"), "s"), apierrors.NewAlreadyExists(corev1.Resource("secrets"), "s")
	conflict, odd := apierrors.NewConflict(corev1.Resource("secrets"), "s", errors.New("x")), errors.New("odd")
	put := func(ctx context.Context, c *loopback.Client) error {
		return loopback.Put(ctx, c, at, &corev1.Secret{}, func(*corev1.Secret) bool { return true })
	}
	same := func(ctx context.Context, c *loopback.Client) error {
		return loopback.Put(ctx, c, at, &corev1.Secret{}, func(*corev1.Secret) bool { return false })
	}
	ensure := func(ctx context.Context, c *loopback.Client) error { return c.Ensure(ctx, at, &corev1.Secret{}) }
	label := func(ctx context.Context, c *loopback.Client) error { return c.LabelSecret(ctx, "ns", "s", "l", "v") }
	labelled := func(ctx context.Context, c *loopback.Client) error { return c.LabelSecret(ctx, "ns", "s", "l", "") }
	type answers = map[loopback.Verb][]error
	for name, c := range map[string]struct {
		do      func(context.Context, *loopback.Client) error
		answers answers
		asked   []loopback.Verb
		err     error
	}{
		"replaced":                  {put, nil, []loopback.Verb{get, update}, nil},
		"nothing to do":             {same, nil, []loopback.Verb{get}, nil},
		"unreadable":                {put, answers{get: {odd}}, []loopback.Verb{get}, odd},
		"created":                   {put, answers{get: {none}}, []loopback.Verb{get, create}, nil},
		"created by another":        {put, answers{get: {none, nil}, create: {there}}, []loopback.Verb{get, create, get, update}, nil},
		"replaced by another":       {put, answers{update: {conflict, nil}}, []loopback.Verb{get, update, get, update}, nil},
		"refused":                   {put, answers{update: {odd}}, []loopback.Verb{get, update}, odd},
		"ensured":                   {ensure, nil, []loopback.Verb{get}, nil},
		"ensured, as it is missing": {ensure, answers{get: {none}}, []loopback.Verb{get, create}, nil},
		"ensured by another":        {ensure, answers{get: {none}, create: {there}}, []loopback.Verb{get, create}, nil},
		"not ensured":               {ensure, answers{get: {none}, create: {odd}}, []loopback.Verb{get, create}, odd},
		"labelled":                  {label, nil, []loopback.Verb{get, update}, nil},
		"labelled already":          {labelled, nil, []loopback.Verb{get}, nil},
		"no secret":                 {label, answers{get: {none}}, []loopback.Verb{get}, none},
		"changed by another":        {label, answers{update: {conflict, nil}}, []loopback.Verb{get, update, get, update}, nil},
		"not labelled":              {label, answers{update: {odd}}, []loopback.Verb{get, update}, odd},
	} {
		s := &script{answers: c.answers}
		if err := c.do(t.Context(), &loopback.Client{Door: s}); !errors.Is(err, c.err) || !slices.Equal(s.asked, c.asked) {
			t.Errorf("%s: %v, asked was %v", name, err, s.asked)
		}
	}
	for name, do := range map[string]func(context.Context, *loopback.Client) error{"put": put, "label": label} {
		s := &script{answers: answers{update: {conflict}}}
		if err := do(t.Context(), &loopback.Client{Door: s}); err == nil || len(s.asked) != 10 {
			t.Errorf("%s: %v after %s", name, err, fmt.Sprint(s.asked))
		}
	}
}
