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

// leaseStore is a store of the published addresses.
type leaseStore struct {
	storage.Interface // other methods are not called

	mu       sync.Mutex
	values   map[string]storage.KeyValue
	revision int64
	failure  error // returned by all methods
	written  int
	ttl      time.Duration // TTL of the last write
}

func (l *leaseStore) Get(_ context.Context, key string, _ int64) (storage.KeyValue, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kv, ok := l.values[key]
	if l.failure == nil && !ok {
		return kv, l.revision, storage.ErrNotFound
	}
	return kv, l.revision, l.failure
}

func (l *leaseStore) List(_ context.Context, prefix string, _ storage.ListOptions) (out storage.ListResult, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, kv := range l.values {
		if strings.HasPrefix(key, prefix) {
			out.Items = append(out.Items, kv)
		}
	}
	return out, l.failure
}

// putDirectly writes a value. The caller holds mu.
func (l *leaseStore) putDirectly(key string, value []byte, opts storage.WriteOptions) (int64, error) {
	if l.failure != nil {
		return 0, l.failure
	}
	l.revision++
	l.written++
	l.ttl = opts.TTL
	l.values[key] = storage.KeyValue{Key: key, Value: value, ModRevision: l.revision}
	return l.revision, nil
}

func (l *leaseStore) Create(_ context.Context, key string, value []byte, opts storage.WriteOptions) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.values[key]; ok {
		return 0, &storage.ExistsError{}
	}
	return l.putDirectly(key, value, opts)
}

func (l *leaseStore) Update(
	_ context.Context,
	key string,
	value []byte,
	expected int64,
	opts storage.WriteOptions,
) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kv, ok := l.values[key]; !ok || kv.ModRevision != expected {
		return 0, &storage.ConflictError{}
	}
	return l.putDirectly(key, value, opts)
}

func (l *leaseStore) Delete(_ context.Context, key string, expected int64, _ ...storage.Precondition) (int64, error) {
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

func (l *leaseStore) setFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// newPresence returns the Presence of a replica that logs to log.
func (l *leaseStore) newPresence(identity string, log *log) *peers.Presence {
	return &peers.Presence{
		Store:    l,
		Root:     "/registry",
		Identity: identity,
		IP:       net.IPv4(10, 0, 0, 7),
		Port:     6443,
		Logger:   slog.New(slog.NewTextHandler(log, nil)),
		Encode: func(endpoints *corev1.Endpoints) ([]byte, error) {
			if identity == "unencodable" {
				return nil, errors.New("encoding failed")
			}
			return json.Marshal(endpoints)
		},
		Decode: func(value []byte, _ int64) (*corev1.Endpoints, error) {
			endpoints := &corev1.Endpoints{}
			if err := json.Unmarshal(value, endpoints); err != nil {
				return nil, err
			}
			return endpoints, nil
		},
	}
}

// log collects log output.
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

func newLeaseStore() *leaseStore { return &leaseStore{values: map[string]storage.KeyValue{}} }

// runPresence runs a Presence until stop is called.
func runPresence(t *testing.T, presence *peers.Presence) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- presence.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want %v", err, context.Canceled)
		}
	})
	t.Cleanup(stop)
	return stop
}

// TestPresencePublishesAddressWhileRunning checks that a replica publishes its address while it
// runs, and overwrites an older value.
func TestPresencePublishesAddressWhileRunning(t *testing.T) {
	store := newLeaseStore()
	logs := &log{}
	store.values["/registry/peerserverleases/me"] = storage.KeyValue{
		Key:         "/registry/peerserverleases/me",
		Value:       []byte("{}"),
		ModRevision: 0,
	}
	for _, identity := range []string{"me", "another"} {
		presence := store.newPresence(identity, logs)
		if presence.Check(nil) == nil {
			t.Error("healthy before the address is published")
		}
		stop := runPresence(t, presence)
		awaitTrue(t, "address published", func() bool { return presence.Check(nil) == nil })
		addresses, err := presence.Addresses(t.Context())
		if fmt.Sprint(addresses) != fmt.Sprintf("map[%s:10.0.0.7:6443]", identity) || err != nil || store.ttl != 15*time.Second {
			t.Errorf("got addresses %v with TTL %s, %v, want 10.0.0.7:6443 with 15s", addresses, store.ttl, err)
		}
		stop()
		if addresses, err := presence.Addresses(t.Context()); len(addresses) > 0 || err != nil {
			t.Errorf("after the end: got addresses %v, %v, want none", addresses, err)
		}
	}
	if logs.String() != "" {
		t.Errorf("got log %s, want none", logs)
	}
}

// TestPresenceRetriesFailedPublication checks that a failed publication is retried soon. A full
// store does not make the replica unhealthy.
func TestPresenceRetriesFailedPublication(t *testing.T) {
	for name, test := range map[string]struct {
		id      string
		failure error
		healthy bool // although the publication fails
	}{
		"the store is unavailable":      {id: "me", failure: errors.New("the store is away")},
		"the store is full":             {id: "me", failure: storage.ErrFull, healthy: true},
		"the address cannot be encoded": {id: "unencodable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newLeaseStore()
			logs := &log{}
			store.failure = test.failure
			presence := store.newPresence(test.id, logs)
			stop := runPresence(t, presence)
			const warning = "failed to publish the address of this replica; retrying"
			awaitTrue(t, "failure logged", func() bool { return strings.Contains(logs.String(), warning) })
			if test.healthy {
				awaitTrue(t, "healthy", func() bool { return presence.Check(nil) == nil })
			} else if presence.Check(nil) == nil {
				t.Error("healthy after a failed publication")
			}
			if _, err := presence.Addresses(t.Context()); !errors.Is(err, test.failure) {
				t.Errorf("addresses: %v", err)
			}
			started := time.Now()
			store.setFailure(nil)
			if test.id == "me" {
				awaitTrue(t, "address published", func() bool { addresses, _ := presence.Addresses(t.Context()); return len(addresses) == 1 })
				if took := time.Since(started); took > 8*time.Second {
					t.Errorf("retry took %s, want at most 8s", took)
				}
			}
			store.setFailure(test.failure)
			stop()
			const farewell = "failed to remove the address of this replica"
			if got := strings.Contains(logs.String(), farewell); got != (test.failure != nil) {
				t.Errorf("got log %s, want %q on failure only", logs, farewell)
			}
		})
	}
}

// TestAddressesIgnoresInvalidEntries checks that invalid addresses are ignored. Otherwise a writer of
// these keys could redirect requests and their users.
func TestAddressesIgnoresInvalidEntries(t *testing.T) {
	store := newLeaseStore()
	storeValue := func(key, text string) {
		store.values["/registry/peerserverleases/"+key] = storage.KeyValue{Key: "/registry/peerserverleases/" + key, Value: []byte(text)}
	}
	endpoints := func(id, ip string, port int) string {
		return fmt.Sprintf(`{"metadata":{"labels":{"apiserverIdentity":%q}},"subsets":[{"addresses":[{"ip":%q}],"ports":[{"port":%d}]}]}`,
			id, ip, port)
	}
	storeValue("good", endpoints("good", "10.0.0.1", 6443))
	storeValue("six", endpoints("six", "2001:db8::1", 1))
	storeValue("last", endpoints("last", "10.0.0.1", 65535))
	storeValue("other", endpoints("third", "10.6.6.6", 6443)) // identity of another replica
	storeValue("", endpoints("", "10.0.0.1", 6443))
	storeValue("nowhere", endpoints("nowhere", "0.0.0.0", 6443))
	storeValue("many", endpoints("many", "224.0.0.1", 6443))
	storeValue("name", endpoints("name", "example.com", 6443))
	storeValue("zero", endpoints("zero", "10.0.0.1", 0))
	storeValue("high", endpoints("high", "10.0.0.1", 65536))
	storeValue("broken", "{")
	storeValue("empty", `{"metadata":{"labels":{"apiserverIdentity":"empty"}}}`)
	storeValue("portless", `{"metadata":{"labels":{"apiserverIdentity":"portless"}},"subsets":[{"addresses":[{"ip":"10.0.0.1"}]}]}`)
	storeValue("placeless", `{"metadata":{"labels":{"apiserverIdentity":"placeless"}},"subsets":[{"ports":[{"port":1}]}]}`)
	addresses, err := store.newPresence("me", &log{}).Addresses(t.Context())
	if want := "map[good:10.0.0.1:6443 last:10.0.0.1:65535 six:[2001:db8::1]:1]"; fmt.Sprint(addresses) != want || err != nil {
		t.Errorf("got %v, %v, want %s", addresses, err, want)
	}
}
