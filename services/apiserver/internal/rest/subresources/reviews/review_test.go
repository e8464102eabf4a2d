package reviews

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/security/authn"
)

type tokens func() (*authn.Review, error)

func (f tokens) Review(context.Context, string, []string) (*authn.Review, error) { return f() }

func TestReviewsOfTokensThatComeToNothing(t *testing.T) {
	a := &room{Config: Config{Tokens: tokens(func() (*authn.Review, error) { return nil, errors.New("the client has left") })}}
	r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}
	if err := a.reviewToken(t.Context(), r); err != nil || r.Status.Authenticated || r.Status.Error != "the client has left" {
		t.Errorf("%+v, %v", r.Status, err)
	}
}

// silent lists no rules.
type silent struct{ authorizer.Chain }

func (silent) RulesFor(context.Context, *authorizer.User, string) (authorizer.Rules, error) {
	return authorizer.Rules{}, nil
}

// mute does not know how to list them.
type mute struct{ authorizer.Authorizer }

// TestNoRules are told as empty lists: clients read null as something else.
func TestNoRules(t *testing.T) {
	for incomplete, z := range map[bool]authorizer.Authorizer{false: silent{}, true: mute{}} {
		a := &room{Config: Config{Authorizer: z}}
		r := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "n"}}
		if err := a.reviewRules(t.Context(), nil, r); err != nil || r.Spec.Namespace != "" {
			t.Errorf("%v, %+v", err, r.Spec)
		}
		if s := r.Status; s.ResourceRules == nil || s.NonResourceRules == nil || len(s.ResourceRules)+len(s.NonResourceRules) > 0 || s.Incomplete != incomplete {
			t.Errorf("%#v", s)
		}
	}
}
