package access

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// blockingReviews is an API server that holds reviews of unknown tokens until released.
type blockingReviews struct {
	*server
	asked chan struct{} // one value per waiting review
	open  chan struct{}
}

// Create implements TokenReviews.
func (s *blockingReviews) Create(ctx context.Context, review *authenticationv1.TokenReview,
	o metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if strings.HasPrefix(review.Spec.Token, "stranger") {
		s.asked <- struct{}{}
		<-s.open
	}
	return s.AuthenticationV1().TokenReviews().Create(ctx, review, o)
}

// TestUnknownTokensBlockNoOthers checks that unknown tokens affect neither cached tokens, nor
// clients with certificates, nor other networks.
func TestUnknownTokensBlockNoOthers(t *testing.T) {
	reviews := &blockingReviews{server: newServer(), asked: make(chan struct{}, 100), open: make(chan struct{})}
	ours := newAuthority(t)
	authorizer := newAuthorizer(t, reviews.server, ours)
	authorizer.tokens = reviews
	now := time.Now()
	authorizer.now = func() time.Time { return now }
	from := func(address string, r *http.Request) *http.Request {
		r.RemoteAddr = address
		return r
	}
	const unknownClient, elsewhere = "[2001:db8::1]:1", "192.0.2.1:1"
	if got := authorizer.Check(from(unknownClient, ask("Bearer ada"))); got != nil {
		t.Fatal(got)
	}
	for n := range 2 * maxDecisions { // they do not evict the cached token
		authorizer.Check(from(unknownClient, ask(fmt.Sprint("Bearer unknown", n))))
	}
	now = now.Add(decisionTTL)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer close(reviews.open)
	for n := range 2 * maxConcurrent {
		waiting.Go(func() {
			authorizer.Check(from(fmt.Sprintf("[2001:db8::%x]:7", n+1), ask(fmt.Sprint("Bearer stranger", n))))
		})
	}
	for range maxConcurrent / 2 {
		<-reviews.asked
	}
	for what, r := range map[string]*http.Request{
		"cached token":       from(unknownClient, ask("Bearer ada")),
		"client certificate": from(unknownClient, ask("", ours.client(x509.ExtKeyUsageClientAuth, time.Hour, "eve", "viewers"))),
	} {
		if got := authorizer.Check(r); got != nil {
			t.Errorf("%s: got %+v, want nil", what, got)
		}
	}
	if got := authorizer.Check(from(elsewhere, ask("Bearer bob"))); got == nil || got.Code != 403 {
		t.Errorf("another network: got %+v, want 403", got)
	}
	select {
	case <-reviews.asked:
		t.Error("got another review of the network, want its requests limited")
	default:
	}
}
