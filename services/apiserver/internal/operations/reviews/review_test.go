package reviews

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"binnacle/services/apiserver/internal/authn"
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
