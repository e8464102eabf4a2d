package peers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/server/peers"
	"binnacle/services/apiserver/internal/storage"
)

// leases is a store of what replicas say of themselves.
type leases struct {
	storage.Interface // has no more than is asked of it

	mu       sync.Mutex
	values   map[string]storage.KeyValue
	revision int64
	failure  error // of all that is asked
	written  int
	lives    time.Duration // as the last was written
}

func (l *leases) Get(_ context.Context, key string, _ int64) (storage.KeyValue, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kv, ok := l.values[key]
	if l.failure == nil && !ok {
		return kv, l.revision, storage.ErrNotFound
	}
	return kv, l.revision, l.failure
}

func (l *leases) List(_ context.Context, prefix string, _ storage.ListOptions) (out storage.ListResult, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, kv := range l.values {
		if strings.HasPrefix(key, prefix) {
			out.Items = append(out.Items, kv)
		}
	}
	return out, l.failure
}

func (l *leases) put(key string, value []byte, opts storage.WriteOptions) (int64, error) {
	if l.failure != nil {
		return 0, l.failure
	}
	l.revision++
	l.written++
	l.lives = opts.TTL
	l.values[key] = storage.KeyValue{Key: key, Value: value, ModRevision: l.revision}
	return l.revision, nil
}

func (l *leases) Create(_ context.Context, key string, value []byte, opts storage.WriteOptions) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.values[key]; ok {
		return 0, &storage.ExistsError{}
	}
	return l.put(key, value, opts)
}

func (l *leases) Update(_ context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kv, ok := l.values[key]; !ok || kv.ModRevision != expected {
		return 0, &storage.ConflictError{}
	}
	return l.put(key, value, opts)
}

func (l *leases) Delete(_ context.Context, key string, expected int64, _ ...storage.Premise) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return 0, l.failure
	}
	if kv, ok := l.values[key]; !ok || kv.ModRevision != expected {
		return 0, &storage.ConflictError{}
	}
	delete(l.values, key)
	return 0, nil
}

func (l *leases) fails(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// presence of a replica in a store, and what it logs.
func (l *leases) presence(id string, log *log) *peers.Presence {
	return &peers.Presence{
		Store: l, Root: "/registry", Identity: id, IP: net.IPv4(10, 0, 0, 7), Port: 6443, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Encode: func(e *corev1.Endpoints) ([]byte, error) {
			if id == "unspeakable" {
				return nil, errors.New("it cannot be said")
			}
			return json.Marshal(e)
		},
		Decode: func(value []byte, _ int64) (*corev1.Endpoints, error) {
			e := &corev1.Endpoints{}
			if err := json.Unmarshal(value, e); err != nil {
				return nil, err
			}
			return e, nil
		},
	}
}

// log is what was logged.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newLeases() *leases { return &leases{values: map[string]storage.KeyValue{}} }

// runs a presence until it is stopped.
func runs(t *testing.T, p *peers.Presence) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("ends with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// TestReplicasSayWhereTheyAre as long as they live, whatever they said before.
func TestReplicasSayWhereTheyAre(t *testing.T) {
	l, said := newLeases(), &log{}
	l.values["/registry/peerserverleases/me"] = storage.KeyValue{Key: "/registry/peerserverleases/me", Value: []byte("{}"), ModRevision: 0}
	for _, id := range []string{"me", "another"} {
		p := l.presence(id, said)
		if p.Check(nil) == nil {
			t.Error("it is well before it has said so")
		}
		stop := runs(t, p)
		eventually(t, "it is said", func() bool { return p.Check(nil) == nil })
		at, err := p.Addresses(t.Context())
		if fmt.Sprint(at) != fmt.Sprintf("map[%s:10.0.0.7:6443]", id) || err != nil || l.lives != 15*time.Second {
			t.Errorf("it is at %v for %s, %v", at, l.lives, err)
		}
		stop()
		if at, err := p.Addresses(t.Context()); len(at) > 0 || err != nil {
			t.Errorf("it is still at %v, %v", at, err)
		}
	}
	if said.String() != "" {
		t.Errorf("logged %s", said)
	}
}

// TestWhatCannotBeSaid is tried again soon, and a full store is nobody's fault.
func TestWhatCannotBeSaid(t *testing.T) {
	for name, c := range map[string]struct {
		id      string
		failure error
		well    bool
	}{
		"away":        {"me", errors.New("the store is away"), false},
		"full":        {"me", storage.ErrFull, true},
		"unspeakable": {"unspeakable", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, said := newLeases(), &log{}
			l.failure = c.failure
			p := l.presence(c.id, said)
			stop := runs(t, p)
			const warning = "peers could not be told where this replica is; trying again"
			eventually(t, "it is logged", func() bool { return strings.Contains(said.String(), warning) })
			if c.well {
				eventually(t, "it is well", func() bool { return p.Check(nil) == nil })
			} else if p.Check(nil) == nil {
				t.Error("it is well")
			}
			if _, err := p.Addresses(t.Context()); !errors.Is(err, c.failure) {
				t.Errorf("addresses: %v", err)
			}
			begun := time.Now()
			l.fails(nil)
			if c.id == "me" {
				eventually(t, "it is said", func() bool { at, _ := p.Addresses(t.Context()); return len(at) == 1 })
				if took := time.Since(begun); took > 8*time.Second {
					t.Errorf("it took %s", took)
				}
			}
			l.fails(c.failure)
			stop()
			const farewell = "peers could not be told that this replica ends"
			if got := strings.Contains(said.String(), farewell); got != (c.failure != nil) {
				t.Errorf("logged %s", said)
			}
		})
	}
}

// TestPlacesThatCannotBeUsed are nobody's: who may write there leads requests, and who asks, where he likes.
func TestPlacesThatCannotBeUsed(t *testing.T) {
	l := newLeases()
	put := func(key, text string) {
		l.values["/registry/peerserverleases/"+key] = storage.KeyValue{Key: "/registry/peerserverleases/" + key, Value: []byte(text)}
	}
	place := func(id, ip string, port int) string {
		return fmt.Sprintf(`{"metadata":{"labels":{"apiserverIdentity":%q}},"subsets":[{"addresses":[{"ip":%q}],"ports":[{"port":%d}]}]}`, id, ip, port)
	}
	put("good", place("good", "10.0.0.1", 6443))
	put("six", place("six", "2001:db8::1", 1))
	put("last", place("last", "10.0.0.1", 65535))
	put("other", place("third", "10.6.6.6", 6443)) // says that it is another
	put("", place("", "10.0.0.1", 6443))
	put("nowhere", place("nowhere", "0.0.0.0", 6443))
	put("many", place("many", "224.0.0.1", 6443))
	put("name", place("name", "example.com", 6443))
	put("zero", place("zero", "10.0.0.1", 0))
	put("high", place("high", "10.0.0.1", 65536))
	put("broken", "{")
	put("empty", `{"metadata":{"labels":{"apiserverIdentity":"empty"}}}`)
	put("portless", `{"metadata":{"labels":{"apiserverIdentity":"portless"}},"subsets":[{"addresses":[{"ip":"10.0.0.1"}]}]}`)
	put("placeless", `{"metadata":{"labels":{"apiserverIdentity":"placeless"}},"subsets":[{"ports":[{"port":1}]}]}`)
	at, err := l.presence("me", &log{}).Addresses(t.Context())
	if want := "map[good:10.0.0.1:6443 last:10.0.0.1:65535 six:[2001:db8::1]:1]"; fmt.Sprint(at) != want || err != nil {
		t.Errorf("they are at %v, %v", at, err)
	}
}
