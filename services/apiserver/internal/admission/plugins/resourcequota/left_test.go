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
)

// TestChargesOfWhoLeft: what has not been charged when nobody waits for it any more is not, and what has been is
// given back. Meanwhile the request has no turn of large work.
func TestChargesOfWhoLeft(t *testing.T) {
	s := of(quota("a", "count/configmaps=20", "count/configmaps=0"), quota("b", "count/configmaps=20", "count/configmaps=0"), quota("c", "count/configmaps=20", "count/configmaps=0"))
	ctx, cancel := context.WithCancel(requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "create"}))
	var away atomic.Int64
	request.SetAside(ctx, func() func() {
		away.Add(1)
		return func() { away.Add(-1) }
	})
	left := make(chan struct{})
	changes := 0
	s.before = func() {
		if changes++; changes == 2 {
			if away.Load() != 1 {
				t.Error("the turn is kept while others work")
			}
			cancel()
			<-left
		}
	}
	p := plugin(t, s, "")
	if _, err := p.Claim(ctx, create("", "configmaps", configMap())); err == nil || away.Load() != 0 {
		t.Errorf("%v, %d are away", err, away.Load())
	}
	close(left)
	for p.Working("n") {
		time.Sleep(time.Millisecond) // between polls
	}
	for _, name := range []string{"a", "b", "c"} {
		if used := s.used(t, name); used != "count/configmaps=0" {
			t.Errorf("%s: used %s", name, used)
		}
	}
	if changes != 3 { // the charge, the one that nobody waits for, and what is given back
		t.Errorf("%d changes", changes)
	}
}

// TestNoTimeForQuotas: who left, and who has no turn, is not told of an internal error.
func TestNoTimeForQuotas(t *testing.T) {
	s := of(quota("q", "count/configmaps=20", "count/configmaps=0"))
	p := plugin(t, s, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Claim(ctx, create("", "configmaps", configMap())); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.unseen = apierrors.NewTooManyRequests("busy", 1)
	if _, err := p.Claim(t.Context(), create("", "configmaps", configMap())); !apierrors.IsTooManyRequests(err) {
		t.Error(err)
	}
	s.unseen = errors.New("broken")
	if _, err := p.Claim(t.Context(), create("", "configmaps", configMap())); !apierrors.IsInternalError(err) {
		t.Error(err)
	}
}
