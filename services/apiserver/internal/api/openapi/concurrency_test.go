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

// gatedWidgets returns widgets whose schema is built when the gate opens. started counts the builds.
func gatedWidgets(t *testing.T, hash string, gate <-chan struct{}) (group openapi.Group, started *atomic.Int32) {
	t.Helper()
	group, started = widgets(t, hash), &atomic.Int32{}
	schemas := group.Schemas
	group.Schemas = func(r *openapi.SchemaCache, kind string) *spec.Schema {
		started.Add(1)
		<-gate
		return schemas(r, kind)
	}
	return group, started
}

// client is a request in progress.
type client struct {
	cancel   context.CancelFunc
	done     chan struct{} // closed at the end of the request
	response *httptest.ResponseRecorder
	// isSuspended and hasReleasedSeats report whether the request has released its work slot and its
	// seats.
	isSuspended, hasReleasedSeats atomic.Bool
}

// seats is how flow control responds to a request that releases its seats.
type seats struct {
	areKept      bool  // the request may not release them, because too many requests wait
	acquireError error // of acquiring them again
}

// send sends a request to a handler.
func send(t *testing.T, handler http.Handler, path, accept string, s seats) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(requesttest.WithInfo(t.Context(), &requestinfo.Info{}))
	sent := &client{cancel: cancel, done: make(chan struct{}), response: httptest.NewRecorder()}
	request.FromContext(ctx).Work = &requesttest.Work{
		OnSuspend: func() func() { sent.isSuspended.Store(true); return func() { sent.isSuspended.Store(false) } },
		OnReleaseSeats: func(hasStarted bool) (func() error, bool) {
			if hasStarted {
				t.Errorf("%s: the response has started when the request releases its seats", path)
			}
			sent.hasReleasedSeats.Store(!s.areKept)
			return func() error { sent.hasReleasedSeats.Store(false); return s.acquireError }, !s.areKept
		},
	}
	r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx)
	r.Header.Set("Accept", accept)
	go func() {
		defer close(sent.done)
		handler.ServeHTTP(sent.response, r)
	}()
	return sent
}

// hasEnded reports whether the request has ended.
func (c *client) hasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// state is the state of a request as tests compare it.
type state struct{ hasEnded, isSuspended, hasReleasedSeats bool }

// state returns the current state of the request.
func (c *client) state() state {
	return state{c.hasEnded(), c.isSuspended.Load(), c.hasReleasedSeats.Load()}
}

// requireState checks the state of requests, which are given by name.
func requireState(t *testing.T, when string, clients map[string]*client, want state) {
	t.Helper()
	for name, c := range clients {
		if got := c.state(); got != want {
			t.Errorf("%s request, %s: got %+v, want %+v", name, when, got, want)
		}
	}
}

// TestManyWaitForOneDocument checks that concurrent requests for a document build it once. A
// waiting request releases its slot and its seats, and can be canceled, even if it was the first.
func TestManyWaitForOneDocument(t *testing.T) {
	for name, c := range map[string]struct{ path, accept string }{
		"v2":             {path: "/openapi/v2"},
		"v2 as protobuf": {path: "/openapi/v2", accept: protoV2},
		"index":          {path: "/openapi/v3"},
		"v3":             {path: "/openapi/v3/apis/shop.example.com/v1"},
		"v3 as protobuf": {path: "/openapi/v3/apis/shop.example.com/v1", accept: protoV3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { manyWaitForOneDocument(t, c.path, c.accept) })
		})
	}
}

// manyWaitForOneDocument runs TestManyWaitForOneDocument for a document.
func manyWaitForOneDocument(t *testing.T, path, accept string) {
	// 1. Send five requests while the build is blocked. At once they release only their slots.
	gate := make(chan struct{})
	group, started := gatedWidgets(t, "1", gate)
	service := newSmallService(t)
	service.Replace([]openapi.Group{group}, nil)
	first := send(t, service, path, accept, seats{})
	synctest.Wait()
	second, third := send(t, service, path, accept, seats{}), send(t, service, path, accept, seats{})
	keepsSeats := send(t, service, path, accept, seats{areKept: true})
	losesSeats := send(t, service, path, accept, seats{acquireError: errors.New("no seats")})
	synctest.Wait()
	requireState(t, "at once", map[string]*client{
		"first": first, "second": second, "third": third, "seat-keeping": keepsSeats, "seat-losing": losesSeats,
	}, state{isSuspended: true})

	// 2. After a while they release their seats, or end if they may not.
	time.Sleep(time.Second)
	synctest.Wait()
	requireState(t, "after a while", map[string]*client{
		"first": first, "second": second, "third": third, "seat-losing": losesSeats,
	}, state{isSuspended: true, hasReleasedSeats: true})
	requireState(t, "after a while", map[string]*client{"seat-keeping": keepsSeats}, state{hasEnded: true})
	if keepsSeats.response.Code != http.StatusTooManyRequests {
		t.Errorf("seat-keeping request: got code %d, want %d", keepsSeats.response.Code, http.StatusTooManyRequests)
	}

	// 3. Cancel the first request. The others go on waiting.
	first.cancel()
	synctest.Wait()
	if !first.hasEnded() || first.response.Code != status.ClosedRequest || second.hasEnded() {
		t.Errorf("canceled first request: got ended: %t with code %d, second request ended: %t; want true, %d, false",
			first.hasEnded(), first.response.Code, second.hasEnded(), status.ClosedRequest)
	}

	// 4. Finish the build.
	close(gate)
	synctest.Wait()
	requireState(t, "after the build", map[string]*client{"second": second, "third": third}, state{hasEnded: true})
	if second.response.Code != http.StatusOK || third.response.Code != http.StatusOK {
		t.Errorf("after the build: got codes %d and %d, want %d", second.response.Code, third.response.Code, http.StatusOK)
	}
	if !losesSeats.hasEnded() || losesSeats.response.Code == http.StatusOK {
		t.Errorf("seat-losing request: got ended: %t with code %d, want it ended with an error",
			losesSeats.hasEnded(), losesSeats.response.Code)
	}
	if n := started.Load(); n != 1 {
		t.Errorf("got %d builds, want 1", n)
	}
}

// TestUnwantedDocumentsAreNotBuilt checks that a build that has not started is dropped when its
// last request is canceled. One that has started is completed and cached.
func TestUnwantedDocumentsAreNotBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		oldGroup, oldBuilds := gatedWidgets(t, "1", gate)
		newGroup, newBuilds := gatedWidgets(t, "2", gate)
		service := newSmallService(t)
		sendAndCancel := func() {
			t.Helper()
			client := send(t, service, "/openapi/v2", "", seats{})
			synctest.Wait()
			client.cancel()
			synctest.Wait()
			if !client.hasEnded() {
				t.Fatal("the canceled request still waits")
			}
		}

		// 1. The canceled request starts the build of the old document, which blocks the only slot.
		service.Replace([]openapi.Group{oldGroup}, nil)
		sendAndCancel()
		waiting := send(t, service, "/openapi/v2", "", seats{})
		synctest.Wait()

		// 2. The canceled request for the new document starts no build.
		service.Replace([]openapi.Group{newGroup}, nil)
		sendAndCancel()
		if old, added := oldBuilds.Load(), newBuilds.Load(); old != 1 || added != 0 {
			t.Errorf("with one slot: got %d old and %d new builds, want 1 and 0", old, added)
		}

		// 3. The old document is completed for the waiting request, and the new one is still not built.
		close(gate)
		synctest.Wait()
		if !waiting.hasEnded() || waiting.response.Code != http.StatusOK {
			t.Errorf("waiting request: got ended: %t with code %d, want true with %d", waiting.hasEnded(), waiting.response.Code, http.StatusOK)
		}
		if old, added := oldBuilds.Load(), newBuilds.Load(); old != 1 || added != 0 {
			t.Errorf("after the build: got %d old and %d new builds, want 1 and 0", old, added)
		}

		// 4. A new request builds the new document.
		body(t, service, "/openapi/v2")
		if n := newBuilds.Load(); n != 1 {
			t.Errorf("after a new request: got %d new builds, want 1", n)
		}
	})
}

// TestPanicsAreNotCached checks that a panic during a build fails the waiting requests, and the
// next request builds again.
func TestPanicsAreNotCached(t *testing.T) {
	service := newSmallService(t)
	group := widgets(t, "1")
	schemas, buildFails := group.Schemas, true
	group.Schemas = func(schemaCache *openapi.SchemaCache, kind string) *spec.Schema {
		if buildFails {
			panic("broken")
		}
		return schemas(schemaCache, kind)
	}
	service.Replace([]openapi.Group{group}, nil)
	paths := []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/shop.example.com/v1"}
	for _, path := range paths {
		if response := get(t, service, path); response.Code != http.StatusInternalServerError {
			t.Errorf("%s: got %d, want %v", path, response.Code, http.StatusInternalServerError)
		}
	}
	buildFails = false
	for _, path := range paths {
		body(t, service, path)
	}
}

// TestGroupVersionsAreReadTogether checks that the source of a group is read once for all its
// versions that are described together.
func TestGroupVersionsAreReadTogether(t *testing.T) {
	for _, path := range []string{"/openapi/v2", "/openapi/v3"} {
		service := newSmallService(t)
		reads := map[string]*atomic.Int32{}
		var groups []openapi.Group
		for _, group := range []string{"one.example.com", "two.example.com"} {
			count := &atomic.Int32{}
			reads[group] = count
			for _, version := range []string{"v1", "v2", "v3"} {
				g := widgets(t, version)
				g.GroupVersion = schema.GroupVersion{Group: group, Version: version}
				g.Kinds[0].Group, g.Kinds[0].Version = group, version
				schemas := g.Schemas
				g.Schemas = func(schemaCache *openapi.SchemaCache, kind string) *spec.Schema {
					if got := schemaCache.Memoize("source", func() any { count.Add(1); return group }); got != group {
						t.Errorf("%s: got source %v, want its own", group, got)
					}
					return schemas(schemaCache, kind)
				}
				groups = append(groups, g)
			}
		}
		service.Replace(groups, nil)
		body(t, service, path)
		for group, count := range reads {
			if count.Load() != 1 {
				t.Errorf("%s: %s: got %d reads, want 1", path, group, count.Load())
			}
		}
	}
}

// TestExtensionsDoNotChangeLocalDocument checks that the local v2 document stays the same while
// only extension servers change.
func TestExtensionsDoNotChangeLocalDocument(t *testing.T) {
	openGate := make(chan struct{})
	close(openGate)
	group, builds := gatedWidgets(t, "1", openGate)
	service := newSmallService(t)
	for _, extensions := range [][]openapi.RemoteGroupVersion{
		nil,
		{{GroupVersion: ext, Hash: "1"}},
		{{GroupVersion: ext, Hash: "2"}},
	} {
		service.Replace([]openapi.Group{group}, extensions)
		body(t, service, "/openapi/v2")
		if path := index(t, service)["apis/ext.test/v1"]; (path == "") != (extensions == nil) {
			t.Errorf("extensions %v: got extension document at %q, want one: %t", extensions, path, extensions != nil)
		}
	}
	if n := builds.Load(); n != 2 { // one for v2, one for v3
		t.Errorf("got %d builds, want 2", n)
	}
	service.Replace(nil, nil)
	if n := len(v2(t, service).Definitions); n == 0 || v2(t, service).Definitions["com.example.shop.v1.Widget"].Type != nil {
		t.Errorf("after the group was removed: got %d definitions, want some, without the widget", n)
	}
}
