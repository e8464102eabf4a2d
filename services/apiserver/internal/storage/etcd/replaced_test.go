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

// world is a store whose etcd can be put in the place of another: both were the same
// up to some revision, as after the restoration of a backup.
type world struct {
	*testing.T
	servers [2]*embedded.Server
	proxy   *etcdtest.Proxy
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, servers: [2]*embedded.Server{etcdtest.Listening(t), etcdtest.Listening(t)}}
	w.proxy = etcdtest.NewProxy(t, w.servers[0].Endpoint())
	return w
}

// write changes things in a server, from a revision on that both are at.
func (w *world) write(server int, values ...string) (last int64) {
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

// TestRestoredUnderAWatch: a watch that is open while etcd is replaced by an older
// state of itself ends, whatever was written there before it came back; one whose
// history is still the store's goes on.
func TestRestoredUnderAWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		same, old, restored []string
		replaced            bool
	}{
		"behind":                            {[]string{"a", "b"}, []string{"c", "d", "e"}, nil, true},
		"one behind":                        {[]string{"a", "b"}, []string{"c"}, nil, true},
		"as far, with other values":         {[]string{"a", "b"}, []string{"c", "d"}, []string{"c", "x"}, true},
		"passed":                            {[]string{"a", "b"}, []string{"c", "d"}, []string{"w", "x", "y", "z"}, true},
		"passed by the same keys at first":  {[]string{"a", "b"}, []string{"c"}, []string{"x", "y", "z"}, true},
		"nothing was written after it":      {[]string{"a", "b"}, nil, nil, false},
		"nothing was told that is lost":     {[]string{"a", "b"}, nil, []string{"x", "y"}, false},
		"the same was written once more":    {[]string{"a", "b"}, []string{"c"}, []string{"c", "d"}, false},
		"everything was before the history": {[]string{"a", "b"}, []string{"c"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			far := etcdtest.Dial(t, w.proxy.Endpoint()) // empties the first server, which writes nothing
			w.write(0, c.same...)
			start := w.write(1, c.same...)
			if len(c.old) > 0 {
				start = w.write(0, c.old...)
			}
			events, err := far.Watch(t.Context(), "/registry/", 1)
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			place := storage.Place{Revision: 1}
			for place.Revision < start {
				place = place.After(await(t, "events", events.Batches()))
			}
			if len(c.restored) > 0 {
				w.write(1, c.restored...)
			}
			w.proxy.Switch(t, w.servers[1].Endpoint())
			if !c.replaced {
				next := w.write(1, "next")
				for place.Revision < next {
					place = place.After(await(t, "events", events.Batches()))
				}
				if _, err := far.Confirm(t.Context(), place); err != nil {
					t.Errorf("confirm: %v", err)
				}
				return
			}
			for b := range events.Batches() {
				t.Errorf("told %+v", b)
			}
			if err := events.Err(); !isReplaced(err) {
				t.Errorf("ended with %v", err)
			}
			if _, err := confirm(t.Context(), far, place); !isReplaced(err) {
				t.Errorf("confirm: %v", err)
			}
		})
	}
}

// confirm asks until the outage is over.
func confirm(ctx context.Context, s storage.Interface, at storage.Place) (rev int64, err error) {
	for {
		if rev, err = s.Confirm(ctx, at); !errors.Is(err, storage.ErrUnavailable) {
			return rev, err
		}
	}
}

func isReplaced(err error) bool {
	var r *storage.ReplacedError
	return errors.As(err, &r)
}

// TestToldBeforeItCounts: an etcd in this process tells of a change just before its
// revision counts, which proves nothing.
func TestToldBeforeItCounts(t *testing.T) {
	cfg := etcdtest.Listening(t).Config()
	counts := cfg.Newest
	asked := make(chan struct{}, 1)
	cfg.Newest = func() (int64, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		rev, err := counts()
		return rev - 1, err
	}
	store := etcdtest.Store(t, cfg)
	events, err := store.Watch(t.Context(), "/registry/", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	var place storage.Place
	write := func(value string) {
		resp, err := cfg.Client.Put(t.Context(), "/registry/pods/a", value)
		if err != nil {
			t.Fatal(err)
		}
		for place.Revision < resp.Header.Revision {
			place = place.After(await(t, "events", events.Batches()))
		}
	}
	write("1")
	if newest, err := store.Confirm(t.Context(), place); err != nil || newest != place.Revision {
		t.Errorf("confirmed %d, %v at %d", newest, err, place.Revision)
	}
	for len(asked) > 0 {
		<-asked
	}
	if err := events.Progress(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "a look at the newest revision", asked)
	write("2")
	if err := events.Err(); err != nil {
		t.Error(err)
	}
}
