package tokenreviews_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authn/tokenreviews"
)

// maxPerNetwork is the number of concurrent reviews of one network.
const maxPerNetwork = 500

// withClientAddress returns the context of a request from an address.
func withClientAddress(ctx context.Context, address string) context.Context {
	ctx, s := request.Derive(ctx)
	s.Principal = request.PrincipalOf(nil, address)
	return ctx
}

// manyClients is a cache whose reviewer blocks tokens that start with "crowd" until they are released.
// Reviews of other tokens return immediately.
type manyClients struct {
	*fixture
	begun    sync.WaitGroup
	released chan struct{}
}

func newManyClients(t *testing.T, change func(*tokenreviews.Config)) *manyClients {
	created := &manyClients{released: make(chan struct{})}
	created.fixture = newFixtureWithoutObjects(t, func(cfg *tokenreviews.Config) {
		reviewer := cfg.Token
		cfg.Token = authenticator.Union{local{}, tokenreviews.Shared(reviewer, 1000)}
		if change != nil {
			change(cfg)
		}
	})
	created.reviewer.resultOf = func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if strings.HasPrefix(token, "crowd") {
			created.begun.Done()
			<-created.released
		}
		return reviewerByName(ctx, token)
	}
	return created
}

// local accepts its own tokens without a service.
type local struct{}

func (local) AuthenticateToken(ctx context.Context, token string, _ []string) (*authenticator.Response, bool, error) {
	if strings.HasPrefix(token, "local") {
		return reviewerByName(ctx, token)
	}
	return nil, false, nil
}

// startMaximum starts the maximum number of reviews from two addresses of one network.
func (c *manyClients) startMaximum(ctx context.Context, wg *sync.WaitGroup) {
	c.begun.Add(maxPerNetwork)
	for i := range maxPerNetwork {
		wg.Go(func() {
			_, _ = c.cache.Review(withClientAddress(ctx, fmt.Sprintf("[2001:db8::%d]:1", i%2+1)), fmt.Sprintf("crowd-%d", i), nil)
		})
	}
	c.begun.Wait()
}

// TestReviewsPerNetworkAreLimited checks that a network that sends too many tokens delays only its
// own tokenreviews. Neither local tokens nor other networks wait.
func TestReviewsPerNetworkAreLimited(t *testing.T) {
	manyClients := newManyClients(t, func(cfg *tokenreviews.Config) { cfg.Timeout = time.Hour })
	var reviews sync.WaitGroup
	manyClients.startMaximum(t.Context(), &reviews)
	for token, address := range map[string]string{
		"local-user": "[2001:db8::1]:2",
		"user":       "[2001:db8:0:1::1]:1",
		"other":      "192.0.2.1:1",
	} {
		if rev, err := manyClients.cache.Review(withClientAddress(t.Context(), address), token, nil); err != nil || !rev.Authenticated {
			t.Errorf("Review(%q) from %s: got %+v, %v; want authenticated", token, address, rev, err)
		}
	}
	// One more token of the crowd waits for a slot. Requests with the same token wait together.
	g := gate{withClientAddress(t.Context(), "[2001:db8::3]:1"), make(chan struct{}, 2)}
	for range 2 {
		reviews.Go(func() {
			if rev, err := manyClients.cache.Review(g, "late", nil); err != nil || !rev.Authenticated {
				t.Errorf("got %+v, %v; want no error, true", rev, err)
			}
		})
	}
	for range 2 {
		<-g.waits
	}
	close(manyClients.released)
	reviews.Wait()
	if n := manyClients.reviewer.reviewsOf("late"); n != 1 {
		t.Errorf("got %d reviews of the waiting token, want 1", n)
	}
}

// cancelableGate is a gate whose request can be canceled.
type cancelableGate struct{ gate }

func (l cancelableGate) Done() <-chan struct{} { l.waits <- struct{}{}; return l.Context.Done() }

// TestCanceledWaitersAreNotReviewed checks that a waiting request that is canceled causes no
// review, and later ones proceed.
func TestCanceledWaitersAreNotReviewed(t *testing.T) {
	manyClients := newManyClients(t, func(cfg *tokenreviews.Config) { cfg.Timeout = time.Hour })
	var waiters sync.WaitGroup
	manyClients.startMaximum(t.Context(), &waiters)
	ctx, leave := context.WithCancel(withClientAddress(t.Context(), "[2001:db8::3]:1"))
	canceled := make(chan error, 1)
	g := cancelableGate{gate{ctx, make(chan struct{}, 1)}}
	go func() {
		_, err := manyClients.cache.Review(g, "late", nil)
		canceled <- err
	}()
	<-g.waits
	leave()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v, want %v", err, context.Canceled)
	}
	if n := manyClients.reviewer.reviewsOf("late"); n != 0 {
		t.Errorf("got %d reviews without a free slot, want 0", n)
	}
	close(manyClients.released)
	waiters.Wait()
	manyClients.awaitTrue("asked about", func() bool {
		rev, err := manyClients.cache.Review(t.Context(), "late", nil)
		return err == nil && rev.Authenticated
	})
}

// TestReviewWithoutSlotInTimeFails checks that a request without a slot fails with ErrUnavailable, and its token is
// not rejected.
func TestReviewWithoutSlotInTimeFails(t *testing.T) {
	c := newManyClients(t, func(cfg *tokenreviews.Config) { cfg.Timeout = 10 * time.Millisecond })
	var wg sync.WaitGroup
	c.startMaximum(t.Context(), &wg)
	if rev, err := c.cache.Review(withClientAddress(t.Context(), "[2001:db8::4]:1"), "late", nil); !errors.Is(err, limit.ErrFull) {
		t.Errorf("got %+v, %v, want %v", rev, err, limit.ErrFull)
	}
	close(c.released)
	wg.Wait()
}
