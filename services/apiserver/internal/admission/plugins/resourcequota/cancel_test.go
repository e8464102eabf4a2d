package resourcequota_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestCanceledReserveReleasesCharges cancels Reserve during the update of the second of three quotas.
// No quota may keep a charge. The request must be suspended while it waits.
func TestCanceledReserveReleasesCharges(t *testing.T) {
	quotas := newStore(
		quota("a", "count/configmaps=20", "count/configmaps=0"),
		quota("b", "count/configmaps=20", "count/configmaps=0"),
		quota("c", "count/configmaps=20", "count/configmaps=0"),
	)
	ctx, cancel := context.WithCancel(requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "create"}))
	var suspended atomic.Int64
	request.FromContext(ctx).Work = &requesttest.Work{OnSuspend: func() func() {
		suspended.Add(1)
		return func() { suspended.Add(-1) }
	}}
	reserveReturned := make(chan struct{})
	changes := 0
	quotas.beforeUpdate = func() {
		changes++
		if changes == 2 {
			if got := suspended.Load(); got != 1 {
				t.Errorf("got %d suspended requests during the update, want 1", got)
			}
			cancel()
			<-reserveReturned
		}
	}
	plugin := newPlugin(t, quotas, "")
	if _, err := plugin.Reserve(ctx, createConfigMap()); err == nil {
		t.Error("Reserve with a canceled context = nil, want an error")
	}
	if got := suspended.Load(); got != 0 {
		t.Errorf("got %d suspended requests after Reserve, want 0", got)
	}
	close(reserveReturned)
	for plugin.Working("n") {
		time.Sleep(time.Millisecond) // between polls
	}
	for _, name := range []string{"a", "b", "c"} {
		if used := quotas.used(t, name); used != "count/configmaps=0" {
			t.Errorf("quota %s: got usage %s, want count/configmaps=0", name, used)
		}
	}
	// These are the charge of a, an update of b that charges nothing, and the release of a.
	if changes != 3 {
		t.Errorf("got %d updates of quotas, want 3", changes)
	}
}

// TestReserveKeepsReasonOfLookupErrors checks that Reserve reports cancellation and throttling as
// such, and other errors of the lookup as internal errors.
func TestReserveKeepsReasonOfLookupErrors(t *testing.T) {
	quotas := newStore(quota("q", "count/configmaps=20", "count/configmaps=0"))
	plugin := newPlugin(t, quotas, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := plugin.Reserve(ctx, createConfigMap()); !errors.Is(err, context.Canceled) {
		t.Errorf("Reserve with a canceled context = %v, want %v", err, context.Canceled)
	}
	quotas.lookupError = apierrors.NewTooManyRequests("busy", 1)
	if _, err := plugin.Reserve(t.Context(), createConfigMap()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("Reserve with a throttled lookup = %v, want TooManyRequests", err)
	}
	quotas.lookupError = errors.New("broken")
	if _, err := plugin.Reserve(t.Context(), createConfigMap()); !apierrors.IsInternalError(err) {
		t.Errorf("Reserve with a failed lookup = %v, want InternalError", err)
	}
}
