package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"binnacle/services/controllers/internal/workers"
)

// newConfig returns a configuration with a queue of keys "namespace/name" for count workers.
func newConfig(count int) workers.Config[string] {
	return workers.Config[string]{
		Count: count,
		Log:   slog.New(slog.DiscardHandler),
		Queue: workers.NewQueue(workers.QueueConfig[string]{
			Workers: count, Namespace: func(key string) string { namespace, _, _ := strings.Cut(key, "/"); return namespace },
		}),
	}
}

// TestQueueServesNamespacesInRotation checks that a namespace with many keys does not delay others.
func TestQueueServesNamespacesInRotation(t *testing.T) {
	queue := newConfig(1).Queue
	for i := range 1000 {
		queue.Add(fmt.Sprintf("a/%d", i))
	}
	queue.Add("b/0")
	queue.Add("b/1")
	queue.Add("c/0")
	var got []string
	for range 7 {
		key, _ := queue.Get()
		got = append(got, key)
		queue.Done(key)
	}
	if want := []string{"a/0", "b/0", "c/0", "a/1", "b/1", "a/2", "a/3"}; !slices.Equal(got, want) {
		t.Errorf("got keys in the order %q, want %q", got, want)
	}
}

// TestSlowKeysOfANamespaceLeaveWorkersFree checks that slow keys of one namespace leave workers to
// other namespaces.
func TestSlowKeysOfANamespaceLeaveWorkersFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, count := range []int{2, 5, 20} {
			config := newConfig(count)
			ctx, cancel := context.WithCancel(t.Context())
			release, processed, running := make(chan struct{}), make(chan string), make(chan string, 100)
			config.Sync = func(_ context.Context, key string) error {
				if strings.HasPrefix(key, "slow/") {
					running <- key
					<-release
				}
				processed <- key
				return nil
			}
			done := make(chan struct{})
			go func() { defer close(done); workers.Run(ctx, config) }()
			for i := range 50 {
				config.Queue.Add(fmt.Sprintf("slow/%d", i))
			}
			for i := range 50 {
				config.Queue.Add(fmt.Sprintf("other/%d", i))
			}
			for range 50 {
				if key := <-processed; !strings.HasPrefix(key, "other/") {
					t.Errorf("%d workers: got %s processed, want a key of other", count, key)
				}
			}
			synctest.Wait()
			if slow := len(running); slow != count/2 && slow != (count+1)/2 {
				t.Errorf("%d workers: %d process the slow namespace, want %d or %d", count, slow, count/2, (count+1)/2)
			}
			close(release)
			for range 50 {
				<-processed
			}
			cancel()
			<-done
		}
	})
}
