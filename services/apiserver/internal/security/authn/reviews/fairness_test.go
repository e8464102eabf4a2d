package reviews_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/security/authn/reviews"
)

// ofOneNetwork is how many questions those of one network have at a time.
const ofOneNetwork = 500

// client is a connection from an address.
type client struct {
	net.Conn
	address string
}

func (c client) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", c.address)
	if err != nil {
		panic(err)
	}
	return a
}

func from(ctx context.Context, address string) context.Context {
	return reviews.WithConnection(ctx, client{address: address})
}

// crowd is a service that answers tokens of a crowd when it is told to, and others at once.
type crowd struct {
	*rig
	begun  sync.WaitGroup
	answer chan struct{}
}

func newCrowd(t *testing.T, change func(*reviews.Config)) *crowd {
	c := &crowd{answer: make(chan struct{})}
	c.rig = newRig(t, false, func(cfg *reviews.Config) {
		asked := cfg.Token
		cfg.Token = authenticator.Union{local{}, reviews.Shared(asked)}
		if change != nil {
			change(cfg)
		}
	})
	c.reviewer.answer = func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if strings.HasPrefix(token, "crowd") {
			c.begun.Done()
			<-c.answer
		}
		return byName(ctx, token)
	}
	return c
}

// local knows its tokens without asking anybody.
type local struct{}

func (local) AuthenticateToken(ctx context.Context, token string, _ []string) (*authenticator.Response, bool, error) {
	if strings.HasPrefix(token, "local") {
		return byName(ctx, token)
	}
	return nil, false, nil
}

// fill has so many tokens under review, from two addresses of one network.
func (c *crowd) fill(ctx context.Context, wg *sync.WaitGroup) {
	c.begun.Add(ofOneNetwork)
	for i := range ofOneNetwork {
		wg.Go(func() {
			_, _ = c.cache.Review(from(ctx, fmt.Sprintf("[2001:db8::%d]:1", i%2+1)), fmt.Sprintf("crowd-%d", i), nil)
		})
	}
	c.begun.Wait()
}

// TestACrowdOfTokens: who sends more tokens than the service answers waits for himself: neither
// tokens that are known here wait, nor those from elsewhere.
func TestACrowdOfTokens(t *testing.T) {
	c := newCrowd(t, func(cfg *reviews.Config) { cfg.Timeout = time.Hour })
	var wg sync.WaitGroup
	c.fill(t.Context(), &wg)
	for token, address := range map[string]string{"local-user": "[2001:db8::1]:2", "user": "[2001:db8:0:1::1]:1", "other": "192.0.2.1:1"} {
		if rev, err := c.cache.Review(from(t.Context(), address), token, nil); err != nil || !rev.Authenticated {
			t.Errorf("%s from %s: %+v, %v", token, address, rev, err)
		}
	}
	// One more of the crowd waits for its turn, all who ask the same together.
	g := gate{from(t.Context(), "[2001:db8::3]:1"), make(chan struct{}, 2)}
	for range 2 {
		wg.Go(func() {
			if rev, err := c.cache.Review(g, "late", nil); err != nil || !rev.Authenticated {
				t.Errorf("got %+v, %v", rev, err)
			}
		})
	}
	for range 2 {
		<-g.waits
	}
	close(c.answer)
	wg.Wait()
	if n := c.reviewer.count("late"); n != 1 {
		t.Errorf("%d reviews of the late one", n)
	}
}

// leaver is a gate that may be left.
type leaver struct{ gate }

func (l leaver) Done() <-chan struct{} { l.waits <- struct{}{}; return l.Context.Done() }

// TestWhoLeavesTheLine is not asked about, and who comes later is.
func TestWhoLeavesTheLine(t *testing.T) {
	c := newCrowd(t, func(cfg *reviews.Config) { cfg.Timeout = time.Hour })
	var wg sync.WaitGroup
	c.fill(t.Context(), &wg)
	ctx, leave := context.WithCancel(from(t.Context(), "[2001:db8::3]:1"))
	left := make(chan error, 1)
	g := leaver{gate{ctx, make(chan struct{}, 1)}}
	go func() {
		_, err := c.cache.Review(g, "late", nil)
		left <- err
	}()
	<-g.waits
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left: %v", err)
	}
	if n := c.reviewer.count("late"); n != 0 {
		t.Errorf("%d reviews while there is no turn", n)
	}
	close(c.answer)
	wg.Wait()
	c.until("asked about", func() bool {
		rev, err := c.cache.Review(t.Context(), "late", nil)
		return err == nil && rev.Authenticated
	})
}

// TestCrowdedOut: who gets no turn in time is told so, which says nothing of the token.
func TestCrowdedOut(t *testing.T) {
	c := newCrowd(t, func(cfg *reviews.Config) { cfg.Timeout = 10 * time.Millisecond })
	var wg sync.WaitGroup
	c.fill(t.Context(), &wg)
	if rev, err := c.cache.Review(from(t.Context(), "[2001:db8::4]:1"), "late", nil); !errors.Is(err, webhookclient.ErrCrowded) {
		t.Errorf("got %+v, %v", rev, err)
	}
	close(c.answer)
	wg.Wait()
}
