package reviewhandlers

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authn"
)

type tokens func() (*authn.Review, error)

func (f tokens) Review(context.Context, string, []string) (*authn.Review, error) { return f() }

// TestTokenReviewReportsErrors checks that a failed review is reported in the status, not as an
// error of the request.
func TestTokenReviewReportsErrors(t *testing.T) {
	a := &service{Config: Config{Tokens: tokens(func() (*authn.Review, error) { return nil, errors.New("the client has left") })}}
	r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}, Status: authenticationv1.TokenReviewStatus{
		Authenticated: true, User: authenticationv1.UserInfo{Username: "sent"}, Audiences: []string{"sent"},
	}}
	if err := a.reviewToken(t.Context(), r); err != nil || r.Status.Authenticated || r.Status.Error != "the client has left" {
		t.Errorf("got %+v, %v, want the error in the status", r.Status, err)
	}
	// As in Kubernetes, fields without a result keep what the client sent.
	if r.Status.User.Username != "sent" || len(r.Status.Audiences) != 1 {
		t.Errorf("got %+v, want the user and the audience that were sent", r.Status)
	}
}

// noRules is an authorizer that lists no rules.
type noRules struct{ authorizer.Chain }

func (noRules) RulesFor(context.Context, *authorizer.User, string) (authorizer.Rules, error) {
	return authorizer.Rules{}, nil
}

// cannotList is an authorizer that cannot list rules.
type cannotList struct{ authorizer.Authorizer }

// TestEmptyRulesAreEmptyLists checks that clients get empty lists instead of null.
func TestEmptyRulesAreEmptyLists(t *testing.T) {
	for incomplete, z := range map[bool]authorizer.Authorizer{false: noRules{}, true: cannotList{}} {
		a := &service{Config: Config{Authorizer: z}}
		r := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "n"}}
		if err := a.reviewRules(t.Context(), nil, r); err != nil || r.Spec.Namespace != "" {
			t.Errorf("got error %v, spec %+v, want no namespace", err, r.Spec)
		}
		if s := r.Status; s.ResourceRules == nil || s.NonResourceRules == nil ||
			len(s.ResourceRules)+len(s.NonResourceRules) > 0 || s.Incomplete != incomplete {
			t.Errorf("got %#v, want empty lists, incomplete %t", s, incomplete)
		}
	}
}

// busyServer is the work of a request that is not admitted if it is large.
type busyServer struct{ request.Work }

func (busyServer) Estimate(_ context.Context, size int) bool { return size < request.LargeBody }

// TestRulesReviewIsALargeRequest checks that a rules review is rejected if the server has no room
// for large requests.
func TestRulesReviewIsALargeRequest(t *testing.T) {
	a := &service{Config: Config{Authorizer: noRules{}}}
	ctx, state := request.Derive(t.Context())
	state.Work = busyServer{}
	if err := a.reviewRules(ctx, nil, &authorizationv1.SelfSubjectRulesReview{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want a TooManyRequests error", err)
	}
}
