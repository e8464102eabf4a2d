package handlers

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestWaitForRevisionReleasesWorkLimit checks that a request that waits for a revision releases its
// limit for large work.
func TestWaitForRevisionReleasesWorkLimit(t *testing.T) {
	store := etcdtest.Embedded(t)
	cache, err := watchcache.New(watchcache.Config{
		Source:          watchcachetest.NewSource(store, "/registry/"),
		CurrentRevision: store,
		Resources: []watchcache.ResourceConfig{{
			Name: "things", Prefix: "/registry/things/",
			Attributes: func(string, []byte) (attributes.Attributes, error) { return attributes.Attributes{}, nil },
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	api := &API{}
	for name, wait := range map[string]func(*Call) error{
		"wait for a revision":        func(call *Call) error { return call.waitForRevision(call.Context(), 999) },
		"wait for the current state": func(call *Call) error { return call.waitForCurrent(call.Context(), call.Store) },
		"list at a revision":         func(call *Call) error { _, err := api.pageAtRevision(call, &listOptions{}, 999, ""); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ctx = requesttest.WithInfo(ctx, &requestinfo.Info{})
			var suspensions, resumptions int
			request.FromContext(ctx).Work = &requesttest.Work{OnSuspend: func() func() {
				suspensions++
				cancel()
				return func() { resumptions++ }
			}}
			call := &Call{
				resource: &apiset.Resource{Store: cache.Store("things")},
				R:        httptest.NewRequest("GET", "/", nil).WithContext(ctx),
				api:      api,
			}
			if err := wait(call); err == nil {
				t.Error("got no error for a future revision")
			}
			if suspensions != 1 || resumptions != 1 {
				t.Errorf("suspended %d times and resumed %d times, want 1 and 1", suspensions, resumptions)
			}
		})
	}
}

// TestWaitForRevisionReleasesSeats checks that a request that waits longer for a revision releases
// its seats. It fails if too many requests wait.
func TestWaitForRevisionReleasesSeats(t *testing.T) {
	store := etcdtest.Embedded(t)
	cache, err := watchcache.New(watchcache.Config{
		Source:          watchcachetest.NewSource(store, "/registry/"),
		CurrentRevision: store,
		Resources: []watchcache.ResourceConfig{{
			Name: "things", Prefix: "/registry/things/",
			Attributes: func(string, []byte) (attributes.Attributes, error) { return attributes.Attributes{}, nil },
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, mayWait := range map[string]bool{"below the limit of waiting requests": true, "at the limit": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ctx = requesttest.WithInfo(ctx, &requestinfo.Info{})
			var suspensions, resumptions int
			request.FromContext(ctx).Work = &requesttest.Work{OnReleaseSeats: func(bool) (func() error, bool) {
				suspensions++
				if mayWait {
					cancel()
				}
				return func() error { resumptions++; return nil }, mayWait
			}}
			call := &Call{
				resource: &apiset.Resource{Store: cache.Store("things")},
				R:        httptest.NewRequest("GET", "/", nil).WithContext(ctx),
				api:      &API{},
			}
			err := call.waitForRevision(call.Context(), 999)
			if mayWait && !errors.Is(err, context.Canceled) || !mayWait && !apierrors.IsTooManyRequests(err) {
				t.Errorf("got error %v, want context canceled if the request may wait: %t, otherwise TooManyRequests", err, mayWait)
			}
			if suspensions != 1 || resumptions != 0 {
				t.Errorf("released its seats %d times and acquired them %d times, want 1 and 0", suspensions, resumptions)
			}
			cancel()
		})
	}
}
