package openapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/status"
)

// slow returns widgets whose schema is built when the gate opens.
func slow(t *testing.T, hash string, gate <-chan struct{}) (g openapi.Group, made *atomic.Int32) {
	t.Helper()
	g, made = widgets(t, hash), &atomic.Int32{}
	inner := g.Schemas
	g.Schemas = func(r *openapi.SchemaCache, kind string) *spec.Schema {
		made.Add(1)
		<-gate
		return inner(r, kind)
	}
	return g, made
}

// client is a request in progress.
type client struct {
	leave context.CancelFunc
	done  chan struct{}
	w     *httptest.ResponseRecorder
	// suspended and rested report whether the request has released its work slot and its seats.
	suspended, rested atomic.Bool
}

// send sends a request, which may release its seats if rests.
func send(t *testing.T, h http.Handler, path, accept string, rests bool, back error) *client {
	t.Helper()
	ctx, leave := context.WithCancel(requesttest.WithInfo(t.Context(), &requestinfo.Info{}))
	c := &client{leave: leave, done: make(chan struct{}), w: httptest.NewRecorder()}
	request.FromContext(ctx).Work = &requesttest.Work{
		OnSuspend: func() func() { c.suspended.Store(true); return func() { c.suspended.Store(false) } },
		OnReleaseSeats: func(started bool) (func() error, bool) {
			if started {
				t.Error("the response has started")
			}
			c.rested.Store(rests)
			return func() error { c.rested.Store(false); return back }, rests
		},
	}
	r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx)
	r.Header.Set("Accept", accept)
	go func() {
		defer close(c.done)
		h.ServeHTTP(c.w, r)
	}()
	return c
}

func (c *client) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// TestManyWaitForOneDocument checks that concurrent requests for a document build it once. A
// waiting request releases its slot and its seats, and can be canceled, even if it was the first.
func TestManyWaitForOneDocument(t *testing.T) {
	for name, c := range map[string]struct{ path, accept string }{
		"v2":             {path: "/openapi/v2"},
		"v2 as protobuf": {path: "/openapi/v2", accept: protoV2},
		"the index":      {path: "/openapi/v3"},
		"v3":             {path: "/openapi/v3/apis/shop.example.com/v1"},
		"v3 as protobuf": {path: "/openapi/v3/apis/shop.example.com/v1", accept: protoV3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				g, made := slow(t, "1", gate)
				s := newSmallService(t)
				s.Replace([]openapi.Group{g}, nil)
				first := send(t, s, c.path, c.accept, true, nil)
				synctest.Wait()
				one, other := send(t, s, c.path, c.accept, true, nil), send(t, s, c.path, c.accept, true, nil)
				many, late := send(t, s, c.path, c.accept, false, nil), send(t, s, c.path, c.accept, true, errors.New("no seats"))
				synctest.Wait()
				for _, w := range []*client{first, one, other, many, late} {
					if w.ended() || !w.suspended.Load() || w.rested.Load() {
						t.Errorf("at once: got ended %t, slot released %t, seats released %t", w.ended(), w.suspended.Load(), w.rested.Load())
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				for _, w := range []*client{first, one, other, late} {
					if w.ended() || !w.suspended.Load() || !w.rested.Load() {
						t.Errorf("after a while: got ended %t, slot released %t, seats released %t",
							w.ended(), w.suspended.Load(), w.rested.Load())
					}
				}
				if !many.ended() || many.w.Code != http.StatusTooManyRequests || many.suspended.Load() {
					t.Errorf("too many waiting requests: got ended %t, %d, want %v", many.ended(), many.w.Code, http.StatusTooManyRequests)
				}
				first.leave()
				synctest.Wait()
				if !first.ended() || first.w.Code != status.ClosedRequest || one.ended() {
					t.Errorf("canceled request: got ended %t with %d; another one: %t, want %v",
						first.ended(), first.w.Code, one.ended(), status.ClosedRequest)
				}
				close(gate)
				synctest.Wait()
				for _, w := range []*client{one, other} {
					if !w.ended() || w.w.Code != http.StatusOK || w.rested.Load() || w.suspended.Load() {
						t.Errorf("at the end: got %t with %d, seats released %t, want %v",
							w.ended(), w.w.Code, w.rested.Load(), http.StatusOK)
					}
				}
				if !late.ended() || late.w.Code == http.StatusOK {
					t.Errorf("without seats: got %d", late.w.Code)
				}
				if n := made.Load(); n != 1 {
					t.Errorf("got %d builds, want 1", n)
				}
			})
		})
	}
}

// TestUnwantedDocumentsAreNotBuilt checks that a build that has not started is dropped when its
// last request is canceled. One that has started is completed and cached.
func TestUnwantedDocumentsAreNotBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		before, madeBefore := slow(t, "1", gate)
		now, madeNow := slow(t, "2", gate)
		s := newSmallService(t)
		leaving := func() {
			t.Helper()
			c := send(t, s, "/openapi/v2", "", true, nil)
			synctest.Wait()
			c.leave()
			synctest.Wait()
			if !c.ended() {
				t.Fatal("the canceled request still waits")
			}
		}
		s.Replace([]openapi.Group{before}, nil)
		leaving()
		again := send(t, s, "/openapi/v2", "", true, nil)
		synctest.Wait()
		s.Replace([]openapi.Group{now}, nil)
		leaving()
		if b, n := madeBefore.Load(), madeNow.Load(); b != 1 || n != 0 {
			t.Errorf("got %d and %d builds with one slot, want 1, 0", b, n)
		}
		close(gate)
		synctest.Wait()
		if !again.ended() || again.w.Code != http.StatusOK || madeBefore.Load() != 1 || madeNow.Load() != 0 {
			t.Errorf("got %d, %d and %d builds, want %v, 1, 0", again.w.Code, madeBefore.Load(), madeNow.Load(), http.StatusOK)
		}
		body(t, s, "/openapi/v2")
		if n := madeNow.Load(); n != 1 {
			t.Errorf("got %d builds after a new request, want 1", n)
		}
	})
}

// TestPanicsAreNotCached checks that a panic during a build fails the waiting requests, and the
// next request builds again.
func TestPanicsAreNotCached(t *testing.T) {
	s := newSmallService(t)
	g := widgets(t, "1")
	inner, broken := g.Schemas, true
	g.Schemas = func(r *openapi.SchemaCache, kind string) *spec.Schema {
		if broken {
			panic("broken")
		}
		return inner(r, kind)
	}
	s.Replace([]openapi.Group{g}, nil)
	paths := []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/shop.example.com/v1"}
	for _, path := range paths {
		if w := get(t, s, path); w.Code != http.StatusInternalServerError {
			t.Errorf("%s: got %d, want %v", path, w.Code, http.StatusInternalServerError)
		}
	}
	broken = false
	for _, path := range paths {
		body(t, s, path)
	}
}

// TestGroupVersionsAreReadTogether checks that the source of a group is read once for all its
// versions that are described together.
func TestGroupVersionsAreReadTogether(t *testing.T) {
	for _, path := range []string{"/openapi/v2", "/openapi/v3"} {
		s := newSmallService(t)
		opened := map[string]*atomic.Int32{}
		var groups []openapi.Group
		for _, group := range []string{"one.example.com", "two.example.com"} {
			n := &atomic.Int32{}
			opened[group] = n
			for _, version := range []string{"v1", "v2", "v3"} {
				g := widgets(t, version)
				g.GroupVersion = schema.GroupVersion{Group: group, Version: version}
				g.Kinds[0].Group, g.Kinds[0].Version = group, version
				inner := g.Schemas
				g.Schemas = func(r *openapi.SchemaCache, kind string) *spec.Schema {
					if got := r.Memoize("source", func() any { n.Add(1); return group }); got != group {
						t.Errorf("%s: got read of %v", group, got)
					}
					return inner(r, kind)
				}
				groups = append(groups, g)
			}
		}
		s.Replace(groups, nil)
		body(t, s, path)
		for group, n := range opened {
			if n.Load() != 1 {
				t.Errorf("%s: %s: got %d reads, want 1", path, group, n.Load())
			}
		}
	}
}

// TestExtensionsDoNotChangeLocalDocument checks that the local v2 document stays the same while
// only extension servers change.
func TestExtensionsDoNotChangeLocalDocument(t *testing.T) {
	open := make(chan struct{})
	close(open)
	g, made := slow(t, "1", open)
	s := newSmallService(t)
	for _, others := range [][]openapi.RemoteGroupVersion{nil, {{GroupVersion: ext, Hash: "1"}}, {{GroupVersion: ext, Hash: "2"}}} {
		s.Replace([]openapi.Group{g}, others)
		body(t, s, "/openapi/v2")
		if at := index(t, s)["apis/ext.test/v1"]; (at == "") != (others == nil) {
			t.Errorf("got extension document at %q", at)
		}
	}
	if n := made.Load(); n != 2 { // one for v2, one for v3
		t.Errorf("got %d builds, want 2", n)
	}
	s.Replace(nil, nil)
	if n := len(v2(t, s).Definitions); n == 0 || v2(t, s).Definitions["com.example.shop.v1.Widget"].Type != nil {
		t.Error("got a removed document")
	}
}
