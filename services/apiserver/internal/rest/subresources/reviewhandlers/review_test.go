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

// reviewFunc is an authenticator that returns the result of a function.
type reviewFunc func() (*authn.Review, error)

func (f reviewFunc) Review(context.Context, string, []string) (*authn.Review, error) { return f() }

// TestTokenReviewReportsErrors checks that a failed review is reported in the status, not as an
// error of the request.
func TestTokenReviewReportsErrors(t *testing.T) {
	reviews := &service{Config: Config{Tokens: reviewFunc(func() (*authn.Review, error) { return nil, errors.New("the client has disconnected") })}}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}, Status: authenticationv1.TokenReviewStatus{
		Authenticated: true, User: authenticationv1.UserInfo{Username: "sent"}, Audiences: []string{"sent"},
	}}
	if err := reviews.reviewToken(t.Context(), review); err != nil || review.Status.Authenticated || review.Status.Error != "the client has disconnected" {
		t.Errorf("got %+v, %v, want the error in the status", review.Status, err)
	}
	// As in Kubernetes, fields without a result keep what the client sent.
	if review.Status.User.Username != "sent" || len(review.Status.Audiences) != 1 {
		t.Errorf("got %+v, want the user and the audience that were sent", review.Status)
	}
}

// emptyRules is an authorizer that lists no rules.
type emptyRules struct{ authorizer.Chain }

func (emptyRules) RulesFor(context.Context, *authorizer.User, string) (authorizer.Rules, error) {
	return authorizer.Rules{}, nil
}

// authorizerWithoutRules is an authorizer that cannot list rules.
type authorizerWithoutRules struct{ authorizer.Authorizer }

// TestEmptyRulesAreEmptyLists checks that clients get empty lists instead of null.
func TestEmptyRulesAreEmptyLists(t *testing.T) {
	for incomplete, ruleSource := range map[bool]authorizer.Authorizer{false: emptyRules{}, true: authorizerWithoutRules{}} {
		reviews := &service{Config: Config{Authorizer: ruleSource}}
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "n"}}
		if err := reviews.reviewRules(t.Context(), nil, review); err != nil || review.Spec.Namespace != "" {
			t.Errorf("got error %v, spec %+v, want no namespace", err, review.Spec)
		}
		if status := review.Status; status.ResourceRules == nil || status.NonResourceRules == nil ||
			len(status.ResourceRules)+len(status.NonResourceRules) > 0 || status.Incomplete != incomplete {
			t.Errorf("got %#v, want empty lists, incomplete %t", status, incomplete)
		}
	}
}

// busyServer is the work of a request that is not admitted if it is large.
type busyServer struct{ request.Work }

func (busyServer) Estimate(_ context.Context, size int) bool { return size < request.LargeBody }

// TestRulesReviewIsALargeRequest checks that a rules review is rejected if the server has no room
// for large requests.
func TestRulesReviewIsALargeRequest(t *testing.T) {
	reviews := &service{Config: Config{Authorizer: emptyRules{}}}
	ctx, state := request.Derive(t.Context())
	state.Work = busyServer{}
	if err := reviews.reviewRules(ctx, nil, &authorizationv1.SelfSubjectRulesReview{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want a TooManyRequests error", err)
	}
}
