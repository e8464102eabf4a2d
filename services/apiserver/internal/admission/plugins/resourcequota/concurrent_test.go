package resourcequota_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestStoreDecides checks that a rejection is confirmed against the store, and a limit holds
// although the cache is stale.
func TestStoreDecides(t *testing.T) {
	quotas := newStore(quota("q", "count/configmaps=3", "count/configmaps=1"))
	quotas.staleQuotas = []*corev1.ResourceQuota{quota("q", "count/configmaps=1", "count/configmaps=1")}
	p := plugin(t, quotas, "")
	if got := rejectionOf(t, p, create("", "configmaps", configMap())); got != "" {
		t.Errorf("got %q, want \"\"", got)
	}
	quotas.staleQuotas = []*corev1.ResourceQuota{quota("q", "count/configmaps=9", "count/configmaps=0")}
	if got := rejectionOf(t, p, create("", "configmaps", configMap())); got != "" {
		t.Errorf("got %q, want \"\"", got)
	}
	if got := rejectionOf(t, p, create("", "configmaps", configMap())); !strings.Contains(got, "used: count/configmaps=3, limited: count/configmaps=3") {
		t.Errorf("got rejection %q, want it to contain %q", got, "used: count/configmaps=3, limited: count/configmaps=3")
	}
	quotas.staleQuotas = []*corev1.ResourceQuota{quota("gone", "count/configmaps=0", "count/configmaps=0")}
	if got := rejectionOf(t, p, create("", "configmaps", configMap())); got != "" {
		t.Errorf("deleted quota: got %q, want \"\"", got)
	}
}

// TestWaitingRequestsAreChargedTogether checks that requests that wait for an earlier one are
// charged in one write, each by its own amount.
func TestWaitingRequestsAreChargedTogether(t *testing.T) {
	quotas := newStore(quota("q", "count/configmaps=20", "count/configmaps=0"))
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	quotas.beforeUpdate = func() {
		once.Do(func() {
			close(entered)
			<-leave
		})
	}
	p := plugin(t, quotas, "")
	results := make(chan error, 31)
	claimAsync := func() {
		_, err := p.Reserve(context.Background(), create("", "configmaps", configMap()))
		results <- err
	}
	go claimAsync()
	<-entered
	for range 30 {
		go claimAsync()
	}
	for p.Waiting("n") < 30 {
		time.Sleep(time.Millisecond) // between polls
	}
	close(leave)
	taken := 0
	for range 31 {
		if err := <-results; err == nil {
			taken++
		} else if !strings.Contains(err.Error(), "exceeded quota: q") {
			t.Error(err)
		}
	}
	if used := quotas.used(t, "q"); taken != 20 || used != "count/configmaps=20" {
		t.Errorf("got %d charged, usage %s; want 20, \"count/configmaps=20\"", taken, used)
	}
	if quotas.changes != 2 {
		t.Errorf("got %d writes of the quota, want 2", quotas.changes)
	}
}
