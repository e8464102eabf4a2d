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

// blockingReviews is an API server that holds reviews of tokens that begin with "blocked" until
// release is closed.
type blockingReviews struct {
	*server
	waiting chan struct{} // one value per waiting review
	release chan struct{}
}

// Create implements TokenReviews.
func (s *blockingReviews) Create(ctx context.Context, review *authenticationv1.TokenReview,
	options metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if strings.HasPrefix(review.Spec.Token, "blocked") {
		s.waiting <- struct{}{}
		<-s.release
	}
	return s.AuthenticationV1().TokenReviews().Create(ctx, review, options)
}

// TestUnknownTokensDoNotBlockOtherClients checks that unknown tokens affect neither cached tokens, nor
// clients with certificates, nor other networks.
func TestUnknownTokensDoNotBlockOtherClients(t *testing.T) {
	reviews := &blockingReviews{server: newServer(), waiting: make(chan struct{}, 100), release: make(chan struct{})}
	trusted := newAuthority(t)
	authorizer := newAuthorizer(t, reviews.server, trusted)
	authorizer.tokens = reviews
	now := time.Now()
	authorizer.now = func() time.Time { return now }
	withAddress := func(address string, req *http.Request) *http.Request {
		req.RemoteAddr = address
		return req
	}
	const unknownClient, elsewhere = "[2001:db8::1]:1", "192.0.2.1:1"
	if got := authorizer.Check(withAddress(unknownClient, newRequest("Bearer ada"))); got != nil {
		t.Fatal(got)
	}
	for i := range 2 * maxDecisions { // they do not evict the cached token
		authorizer.Check(withAddress(unknownClient, newRequest(fmt.Sprint("Bearer unknown", i))))
	}
	now = now.Add(decisionTTL)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer close(reviews.release)
	for i := range 2 * maxConcurrent {
		waiting.Go(func() {
			authorizer.Check(withAddress(fmt.Sprintf("[2001:db8::%x]:7", i+1), newRequest(fmt.Sprint("Bearer blocked", i))))
		})
	}
	for range maxConcurrent / 2 {
		<-reviews.waiting
	}
	for name, req := range map[string]*http.Request{
		"cached token":       withAddress(unknownClient, newRequest("Bearer ada")),
		"client certificate": withAddress(unknownClient, newRequest("", trusted.issueClient(x509.ExtKeyUsageClientAuth, time.Hour, "eve", "viewers"))),
	} {
		if got := authorizer.Check(req); got != nil {
			t.Errorf("%s: got %+v, want nil", name, got)
		}
	}
	if got := authorizer.Check(withAddress(elsewhere, newRequest("Bearer bob"))); got == nil || got.Code != 403 {
		t.Errorf("another network: got %+v, want 403", got)
	}
	select {
	case <-reviews.waiting:
		t.Error("got another review of the network, want its requests limited")
	default:
	}
}
