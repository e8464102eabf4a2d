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

// outdated is a store on an etcd that says that it is of a version.
func outdated(t *testing.T, version string) (*etcdtest.Outdated, *etcd.Store, *strings.Builder) {
	t.Helper()
	old := etcdtest.NewOutdated(t, etcdtest.Listening(t).Endpoint(), version)
	log := &strings.Builder{} // written by one watch, read when that has ended
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{old.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return old, etcdtest.Store(t, etcd.Config{Client: client, Logger: slog.New(slog.NewTextHandler(log, nil))}), log
}

// TestProgressOfAnOutdatedEtcd: before 3.4.31 and 3.5.13 etcd says that everything
// was delivered while events are on their way. Believed, that loses them.
func TestProgressOfAnOutdatedEtcd(t *testing.T) {
	for version, believed := range map[string]bool{"3.5.12": false, "3.4.30": false, "3.5.13": true, "3.6.2": true} {
		t.Run(version, func(t *testing.T) {
			old, store, log := outdated(t, version)
			start, err := store.Create(t.Context(), "/registry/pods/before", nil, storage.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := store.Watch(t.Context(), "/registry/", start-1)
			if err != nil {
				t.Fatal(err)
			}
			if b := await(t, "an event", w.Batches()); len(b.Events) != 1 {
				t.Fatalf("told %+v", b)
			}
			old.Hold()
			wrote, err := store.Create(t.Context(), "/registry/pods/a", nil, storage.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Progress(t.Context()); err != nil {
				t.Fatal(err)
			}
			if believed {
				// This is the lie: the fake is what it is to be.
				if b := await(t, "progress", w.Batches()); len(b.Events) != 0 || b.Revision < wrote {
					t.Errorf("told %+v", b)
				}
				w.Stop()
				return
			}
			// It waits in vain for events, and writes itself.
			marked := make(chan struct{})
			go func() {
				for _, _, err := store.Get(t.Context(), marker, 0); err != nil && t.Context().Err() == nil; _, _, err = store.Get(t.Context(), marker, 0) {
				}
				close(marked)
			}()
			await(t, "the marker", marked)
			old.Release()
			if b := await(t, "the event", w.Batches()); len(b.Events) == 0 || b.Events[0].Key != "/registry/pods/a" || b.Events[0].Revision != wrote {
				t.Errorf("told %+v", b)
			}
			w.Stop()
			if text := log.String(); !strings.Contains(text, "UPGRADE ETCD") || !strings.Contains(text, version) {
				t.Errorf("the log says %q", text)
			}
		})
	}
}

// TestProgressWithoutNotifications: what an outdated etcd does not say is found out.
func TestProgressWithoutNotifications(t *testing.T) {
	_, store, _ := outdated(t, "3.5.1")
	start, err := store.Create(t.Context(), "/registry/pods/a", nil, storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Watch(t.Context(), "/registry/", start)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	progress := func(least int64) {
		t.Helper()
		if err := w.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		for b := (storage.Batch{}); b.Revision < least || len(b.Events) > 0; {
			b = await(t, "progress", w.Batches())
		}
	}
	progress(start)
	if _, _, err := store.Get(t.Context(), marker, 0); err == nil {
		t.Error("a marker was written though nothing had happened")
	}
	elsewhere, err := store.Create(t.Context(), "/elsewhere", nil, storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	progress(elsewhere)
	inside, err := store.Create(t.Context(), "/registry/pods/b", nil, storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	progress(inside)
}

// TestAnEtcdThatIsNotKnownIsNotBelieved: an endpoint may answer for another member
// than the one that serves a watch, or not at all.
func TestAnEtcdThatIsNotKnownIsNotBelieved(t *testing.T) {
	t.Parallel()
	target := etcdtest.Listening(t).Endpoint()
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
	fresh, old := etcdtest.NewOutdated(t, target, "3.6.1").Endpoint(), etcdtest.NewOutdated(t, target, "3.5.3").Endpoint()
	const nobody = "http://127.0.0.1:1"
	var asking sync.WaitGroup
	for _, c := range []struct {
		endpoints []string
		serving   uint64
		want      string
	}{
		{[]string{fresh}, self, "trusted"}, {[]string{old}, self, "distrusted"}, {[]string{fresh, nobody}, self, "trusted"},
		{[]string{fresh}, other, "trusted"}, {[]string{old}, other, "distrusted"}, {[]string{fresh, old}, other, "distrusted"},
		{[]string{fresh, nobody}, other, "unknown"}, {[]string{old, nobody}, other, "distrusted"}, {[]string{nobody}, self, "unknown"},
		{[]string{fresh}, 0, "trusted"}, {[]string{fresh, nobody}, 0, "unknown"},
	} {
		asking.Go(func() {
			client, err := etcd.Dial(etcd.DialOptions{Servers: c.endpoints})
			if err != nil {
				t.Error(err)
				return
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // for who does not answer
			defer cancel()
			if got := etcd.Judge(ctx, client, c.serving); got != c.want {
				t.Errorf("%v, served by %d: %s, want %s", c.endpoints, c.serving, got, c.want)
			}
		})
	}
	asking.Wait()
}

// TestConformanceOutdated: the contract holds without notifications, too.
func TestConformanceOutdated(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the same suite as in process")
	}
	storagetest.Run(t, func(t *testing.T) storage.Interface {
		return etcdtest.Dial(t, etcdtest.NewOutdated(t, etcdtest.Listening(t).Endpoint(), "3.5.5").Endpoint())
	})
}
