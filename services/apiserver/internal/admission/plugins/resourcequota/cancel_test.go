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

// TestChargesOfCanceledRequests: a canceled request is not charged. What it was charged before is
// released. The request does not hold its seats while it waits.
func TestChargesOfCanceledRequests(t *testing.T) {
	quotas := newStore(quota("a", "count/configmaps=20", "count/configmaps=0"), quota("b", "count/configmaps=20", "count/configmaps=0"), quota("c", "count/configmaps=20", "count/configmaps=0"))
	ctx, cancel := context.WithCancel(requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "create"}))
	var away atomic.Int64
	request.From(ctx).Work = &requesttest.Work{OnSuspend: func() func() {
		away.Add(1)
		return func() { away.Add(-1) }
	}}
	left := make(chan struct{})
	changes := 0
	quotas.before = func() {
		changes++
		if changes == 2 {
			if away.Load() != 1 {
				t.Error("the request is not suspended while it waits")
			}
			cancel()
			<-left
		}
	}
	p := plugin(t, quotas, "")
	if _, err := p.Claim(ctx, create("", "configmaps", configMap())); err == nil || away.Load() != 0 {
		t.Errorf("got %v, %d suspended; want an error, 0", err, away.Load())
	}
	close(left)
	for p.Working("n") {
		time.Sleep(time.Millisecond) // between polls
	}
	for _, name := range []string{"a", "b", "c"} {
		if used := quotas.used(t, name); used != "count/configmaps=0" {
			t.Errorf("%s: used %s, want \"count/configmaps=0\"", name, used)
		}
	}
	if changes != 3 { // a charge, a charge without waiting request, and a release
		t.Errorf("got %d changes, want 3", changes)
	}
}

// TestQuotaLookupErrors: cancellation and throttling are not reported as internal errors.
func TestQuotaLookupErrors(t *testing.T) {
	quotas := newStore(quota("q", "count/configmaps=20", "count/configmaps=0"))
	p := plugin(t, quotas, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Claim(ctx, create("", "configmaps", configMap())); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	quotas.unseen = apierrors.NewTooManyRequests("busy", 1)
	if _, err := p.Claim(t.Context(), create("", "configmaps", configMap())); !apierrors.IsTooManyRequests(err) {
		t.Error(err)
	}
	quotas.unseen = errors.New("broken")
	if _, err := p.Claim(t.Context(), create("", "configmaps", configMap())); !apierrors.IsInternalError(err) {
		t.Error(err)
	}
}
