package etcd_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
	"binnacle/services/apiserver/internal/storage/storagetest"
)

const marker = "/registry/binnacle-progress"

// startOutdated returns a store on an etcd that reports the given version, and its log.
func startOutdated(t *testing.T, version string) (*etcdtest.OldVersionProxy, *etcd.Store, *strings.Builder) {
	t.Helper()
	old := etcdtest.NewOldVersionProxy(t, etcdtest.ListeningServer(t).Endpoint(), version)
	log := &strings.Builder{} // written by one watch, read after it has ended
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{old.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return old, etcdtest.NewStore(t, etcd.Config{Client: client, Logger: slog.New(slog.NewTextHandler(log, nil))}), log
}

// TestProgressOfOutdatedEtcdFollowsEvents checks versions before 3.4.31 and 3.5.13, whose progress
// notifications may overtake events. Trusting them would lose the events.
func TestProgressOfOutdatedEtcdFollowsEvents(t *testing.T) {
	for version, reliable := range map[string]bool{"3.5.12": false, "3.4.30": false, "3.3.27": false, "3.4.31": true, "3.5.13": true, "3.6.0-rc.1": true, "4.0.0": true} {
		t.Run(version, func(t *testing.T) {
			old, store, log := startOutdated(t, version)
			start, err := store.Create(t.Context(), "/registry/pods/before", nil, storage.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			watcher, err := store.Watch(t.Context(), "/registry/", start-1)
			if err != nil {
				t.Fatal(err)
			}
			if b := awaitValue(t, "an event", watcher.Batches()); len(b.Events) != 1 {
				t.Fatalf("got %+v, want one event", b)
			}
			old.HoldEvents()
			wrote, err := store.Create(t.Context(), "/registry/pods/a", nil, storage.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := watcher.Progress(t.Context()); err != nil {
				t.Fatal(err)
			}
			if reliable {
				// The notification overtakes the event, as the fake is meant to do.
				if b := awaitValue(t, "progress", watcher.Batches()); len(b.Events) != 0 || b.Revision < wrote {
					t.Errorf("got %+v, want progress without events", b)
				}
				watcher.Stop()
				return
			}
			// The store gets no event and writes a marker.
			marked := make(chan struct{})
			go func() {
				for _, _, err := store.Get(t.Context(), marker, 0); err != nil &&
					t.Context().Err() == nil; _, _, err = store.Get(t.Context(), marker, 0) {
				}
				close(marked)
			}()
			awaitValue(t, "the marker", marked)
			old.ReleaseEvents()
			if b := awaitValue(t, "the event", watcher.Batches()); len(b.Events) == 0 ||
				b.Events[0].Key != "/registry/pods/a" || b.Events[0].Revision != wrote {
				t.Errorf("got %+v, want the event of pod a", b)
			}
			watcher.Stop()
			if text := log.String(); !strings.Contains(text, "upgrade etcd") || !strings.Contains(text, version) {
				t.Errorf("got log %q, want \"upgrade etcd\" and version %s", text, version)
			}
		})
	}
}

// TestProgressOfOutdatedEtcdNeedsNoNotification checks that progress is determined without notifications of an
// outdated etcd.
func TestProgressOfOutdatedEtcdNeedsNoNotification(t *testing.T) {
	_, store, _ := startOutdated(t, "3.5.1")
	start, err := store.Create(t.Context(), "/registry/pods/a", nil, storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Watch(t.Context(), "/registry/", start)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	wantProgress := func(least int64) {
		t.Helper()
		if err := w.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		for b := (storage.Batch{}); b.Revision < least || len(b.Events) > 0; {
			b = awaitValue(t, "progress", w.Batches())
		}
	}
	wantProgress(start)
	if _, _, err := store.Get(t.Context(), marker, 0); err == nil {
		t.Error("a marker was written without a change, want none")
	}
	elsewhere, err := store.Create(t.Context(), "/elsewhere", nil, storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantProgress(elsewhere)
	inside, err := store.Create(t.Context(), "/registry/pods/b", nil, storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantProgress(inside)
}

// TestUnknownEtcdIsUnreliable checks the reliability of notifications if the endpoints respond for
// another member than the one that serves the watch, or not at all.
func TestUnknownEtcdIsUnreliable(t *testing.T) {
	t.Parallel()
	target := etcdtest.ListeningServer(t).Endpoint()
	direct, err := etcd.Dial(etcd.DialOptions{Servers: []string{target}})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	status, err := direct.Status(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	self, other := status.Header.MemberId, status.Header.MemberId+1
	current := etcdtest.NewOldVersionProxy(t, target, "3.6.1").Endpoint()
	old := etcdtest.NewOldVersionProxy(t, target, "3.5.3").Endpoint()
	const unreachable = "http://127.0.0.1:1"
	var checks sync.WaitGroup
	for _, test := range []struct {
		endpoints []string
		serving   uint64
		want      string
	}{
		{endpoints: []string{current}, serving: self, want: "reliable"},
		{endpoints: []string{old}, serving: self, want: "unreliable"},
		{endpoints: []string{current, unreachable}, serving: self, want: "reliable"},
		{endpoints: []string{current}, serving: other, want: "reliable"},
		{endpoints: []string{old}, serving: other, want: "unreliable"},
		{endpoints: []string{current, old}, serving: other, want: "unreliable"},
		{endpoints: []string{current, unreachable}, serving: other, want: "unknown"},
		{endpoints: []string{old, unreachable}, serving: other, want: "unreliable"},
		{endpoints: []string{unreachable}, serving: self, want: "unknown"},
		{endpoints: []string{current}, serving: 0, want: "reliable"},
		{endpoints: []string{current, unreachable}, serving: 0, want: "unknown"},
	} {
		checks.Go(func() {
			client, err := etcd.Dial(etcd.DialOptions{Servers: test.endpoints})
			if err != nil {
				t.Error(err)
				return
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // for unreachable endpoints
			defer cancel()
			if got := etcd.ProgressReliability(ctx, client, test.serving); got != test.want {
				t.Errorf("%v, served by %d: got %s, want %s", test.endpoints, test.serving, got, test.want)
			}
		})
	}
	checks.Wait()
}

// TestConformanceOfOutdatedEtcd runs the conformance suite without progress notifications.
func TestConformanceOfOutdatedEtcd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("repeats the suite of the embedded server")
	}
	storagetest.Run(t, func(t *testing.T) storage.Interface {
		return etcdtest.OpenEmptied(t, etcdtest.NewOldVersionProxy(t, etcdtest.ListeningServer(t).Endpoint(), "3.5.5").Endpoint())
	})
}
