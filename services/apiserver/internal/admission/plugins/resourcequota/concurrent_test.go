package resourcequota_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestStaleCacheDoesNotDecide checks that the stored quota decides if the cache is stale: the cache
// neither rejects a request nor allows one beyond the limit.
func TestStaleCacheDoesNotDecide(t *testing.T) {
	quotas := newStore(quota("q", "count/configmaps=3", "count/configmaps=1"))
	quotas.staleQuotas = []*corev1.ResourceQuota{quota("q", "count/configmaps=1", "count/configmaps=1")}
	plugin := newPlugin(t, quotas, "")
	if got := charge(t, plugin, createConfigMap()); got != "" {
		t.Errorf("limit reached in the cache, but not in the store: got rejection %q, want none", got)
	}
	quotas.staleQuotas = []*corev1.ResourceQuota{quota("q", "count/configmaps=9", "count/configmaps=0")}
	if got := charge(t, plugin, createConfigMap()); got != "" {
		t.Errorf("limit not reached: got rejection %q, want none", got)
	}
	const want = "used: count/configmaps=3, limited: count/configmaps=3"
	if got := charge(t, plugin, createConfigMap()); !strings.Contains(got, want) {
		t.Errorf("limit reached in the store, but not in the cache: got rejection %q, want it to contain %q", got, want)
	}
	quotas.staleQuotas = []*corev1.ResourceQuota{quota("gone", "count/configmaps=0", "count/configmaps=0")}
	if got := charge(t, plugin, createConfigMap()); got != "" {
		t.Errorf("limit of a deleted quota: got rejection %q, want none", got)
	}
}

// TestWaitingRequestsAreChargedTogether checks that requests that wait for an earlier one are
// charged in one write, each by its own amount.
func TestWaitingRequestsAreChargedTogether(t *testing.T) {
	quotas := newStore(quota("q", "count/configmaps=20", "count/configmaps=0"))
	updateStarted, finishUpdate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	quotas.beforeUpdate = func() {
		once.Do(func() {
			close(updateStarted)
			<-finishUpdate
		})
	}
	plugin := newPlugin(t, quotas, "")
	results := make(chan error, 31)
	reserve := func() {
		_, err := plugin.Reserve(context.Background(), createConfigMap())
		results <- err
	}
	go reserve()
	<-updateStarted
	for range 30 {
		go reserve()
	}
	for plugin.Waiting("n") < 30 {
		time.Sleep(time.Millisecond) // between polls
	}
	close(finishUpdate)
	allowed := 0
	for range 31 {
		if err := <-results; err == nil {
			allowed++
		} else if !strings.Contains(err.Error(), "exceeded quota: q") {
			t.Error(err)
		}
	}
	if used := quotas.used(t, "q"); allowed != 20 || used != "count/configmaps=20" {
		t.Errorf("got %d allowed requests of 31 and usage %s, want 20 and count/configmaps=20", allowed, used)
	}
	if quotas.changes != 2 {
		t.Errorf("got %d updates of the quota, want 2: one for the first request, one for all others", quotas.changes)
	}
}
