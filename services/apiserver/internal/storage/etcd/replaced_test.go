package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// fixture is a store whose etcd can be replaced by another one with the same history up to a
// revision, as after restoring a backup.
type fixture struct {
	*testing.T
	servers [2]*embedded.Server
	proxy   *etcdtest.Proxy
}

func newFixture(t *testing.T) *fixture {
	created := &fixture{T: t, servers: [2]*embedded.Server{etcdtest.ListeningServer(t), etcdtest.ListeningServer(t)}}
	created.proxy = etcdtest.NewProxy(t, created.servers[0].Endpoint())
	return created
}

// writeKeys changes keys in one server.
func (w *fixture) writeKeys(server int, values ...string) (last int64) {
	w.Helper()
	client := w.servers[server].Client()
	for i, v := range values {
		resp, err := client.Put(w.Context(), fmt.Sprintf("/registry/pods/%d", i%2), v)
		if err != nil {
			w.Fatal(err)
		}
		last = resp.Header.Revision
	}
	return last
}

// TestWatchEndsWhenEtcdIsRestored checks that a watch ends when etcd is replaced by an
// older state of itself, whatever is written there before the reconnection. A watch
// whose history is still that of the store continues.
func TestWatchEndsWhenEtcdIsRestored(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		same, old, restored []string
		replaced            bool
	}{
		"behind":     {same: []string{"a", "b"}, old: []string{"c", "d", "e"}, replaced: true},
		"one behind": {same: []string{"a", "b"}, old: []string{"c"}, replaced: true},
		"same revision, other values": {
			same:     []string{"a", "b"},
			old:      []string{"c", "d"},
			restored: []string{"c", "x"},
			replaced: true,
		},
		"beyond": {
			same:     []string{"a", "b"},
			old:      []string{"c", "d"},
			restored: []string{"w", "x", "y", "z"},
			replaced: true,
		},
		"beyond, beginning with the same keys": {
			same:     []string{"a", "b"},
			old:      []string{"c"},
			restored: []string{"x", "y", "z"},
			replaced: true,
		},
		"nothing written since the backup":      {same: []string{"a", "b"}},
		"no lost change was delivered":          {same: []string{"a", "b"}, restored: []string{"x", "y"}},
		"the same change was written again":     {same: []string{"a", "b"}, old: []string{"c"}, restored: []string{"c", "d"}},
		"nothing written since the restoration": {same: []string{"a", "b"}, old: []string{"c"}, replaced: true},
	} {
		t.Run(name, func(t *testing.T) {
			// 1. Two servers get the same values, which stand for the backup. Then the first one
			// gets the values of old.
			fixture := newFixture(t)
			store := etcdtest.OpenEmptied(t, fixture.proxy.Endpoint()) // empties the first server without a write
			fixture.writeKeys(0, test.same...)
			start := fixture.writeKeys(1, test.same...)
			if len(test.old) > 0 {
				start = fixture.writeKeys(0, test.old...)
			}

			// 2. A watch receives everything from the first server.
			events, err := store.Watch(t.Context(), "/registry/", 1)
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			position := storage.Position{Revision: 1}
			for position.Revision < start {
				position = position.Advance(awaitValue(t, "events", events.Batches()))
			}

			// 3. The address leads to the second server, with the values of restored.
			if len(test.restored) > 0 {
				fixture.writeKeys(1, test.restored...)
			}
			fixture.proxy.Switch(t, fixture.servers[1].Endpoint())

			// 4. The watch continues if the second server has all changes that it delivered, and
			// ends otherwise.
			if !test.replaced {
				next := fixture.writeKeys(1, "next")
				for position.Revision < next {
					position = position.Advance(awaitValue(t, "events", events.Batches()))
				}
				if _, err := store.VerifyHistory(t.Context(), position); err != nil {
					t.Errorf("VerifyHistory(%+v): got error %v, want none", position, err)
				}
				return
			}
			for b := range events.Batches() {
				t.Errorf("got batch %+v after the replacement, want none", b)
			}
			if err := events.Err(); !isReplaced(err) {
				t.Errorf("watch ended with %v, want ReplacedError", err)
			}
			if _, err := confirmAfterOutage(t.Context(), store, position); !isReplaced(err) {
				t.Errorf("VerifyHistory after the replacement: got %v, want ReplacedError", err)
			}
		})
	}
}

// confirmAfterOutage repeats VerifyHistory until the outage is over.
func confirmAfterOutage(ctx context.Context, s storage.Interface, at storage.Position) (rev int64, err error) {
	for {
		rev, err = s.VerifyHistory(ctx, at)
		if !errors.Is(err, storage.ErrUnavailable) {
			return rev, err
		}
	}
}

func isReplaced(err error) bool {
	var r *storage.ReplacedError
	return errors.As(err, &r)
}

// TestEventBeforeRevisionIsNoReplacement checks that an event of an embedded etcd that arrives
// just before its revision counts is not taken for a replaced store.
func TestEventBeforeRevisionIsNoReplacement(t *testing.T) {
	cfg := etcdtest.ListeningServer(t).Config()
	actual := cfg.LocalRevision
	calls := make(chan struct{}, 1)
	cfg.LocalRevision = func() (int64, error) {
		select {
		case calls <- struct{}{}:
		default:
		}
		rev, err := actual()
		return rev - 1, err
	}
	store := etcdtest.NewStore(t, cfg)
	events, err := store.Watch(t.Context(), "/registry/", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	var position storage.Position
	write := func(value string) {
		resp, err := cfg.Client.Put(t.Context(), "/registry/pods/a", value)
		if err != nil {
			t.Fatal(err)
		}
		for position.Revision < resp.Header.Revision {
			position = position.Advance(awaitValue(t, "events", events.Batches()))
		}
	}
	write("1")
	if newest, err := store.VerifyHistory(t.Context(), position); err != nil || newest != position.Revision {
		t.Errorf("VerifyHistory: got %d, %v, want %d", newest, err, position.Revision)
	}
	for len(calls) > 0 {
		<-calls
	}
	if err := events.Progress(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitValue(t, "a read of the newest revision", calls)
	write("2")
	if err := events.Err(); err != nil {
		t.Error(err)
	}
}
