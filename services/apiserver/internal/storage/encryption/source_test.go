package encryption_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

// fixedSource is a source of values that do not change.
type fixedSource struct {
	items []storage.KeyValue
	// follow is called by Follow and returns its error.
	follow func(ctx context.Context) error
}

func (s fixedSource) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, page(slices.Clone(s.items))
}

func (s fixedSource) Follow(ctx context.Context, _ storage.Position, _ func(storage.Batch) error) error {
	return s.follow(ctx)
}

func (fixedSource) Progress(context.Context) error { return nil }

// storedItem returns a stored value.
func (s *rawStore) storedItem(key string) storage.KeyValue {
	return storage.KeyValue{Key: key, Value: s.values[key], ModRevision: 1, CreateRevision: 1}
}

// newLoadedSource returns a source that has loaded its stream.
func newLoadedSource(t testing.TB, stream fixedSource, live *encryption.Live) *encryption.Source {
	t.Helper()
	source := encryption.NewSource(stream, live, builtIn(), nil)
	if _, err := source.Load(t.Context(), func([]storage.KeyValue) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return source
}

func waitForEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestSourceFollowReturnsReason checks that Follow returns the error of its stream, that of the context,
// or *storage.ReopenedError if all values must be decrypted again.
func TestSourceFollowReturnsReason(t *testing.T) {
	streamErr := errors.New("own")
	reopened := func(err error) bool { return errors.As(err, new(*storage.ReopenedError)) }
	for _, test := range []struct {
		name  string
		lost  bool // the key is lost
		ended bool // the context ends
		ends  error
		want  func(error) bool
	}{
		{name: "stream error", ends: streamErr, want: func(err error) bool { return errors.Is(err, streamErr) && !reopened(err) }},
		{name: "reopened", lost: true, want: reopened},
		{
			name:  "reopened with an ended context",
			lost:  true,
			ended: true,
			want:  func(err error) bool { return errors.Is(err, context.Canceled) && !reopened(err) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			live := openWith(t, newBuilder(t), rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32))), true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			source := newLoadedSource(t, fixedSource{follow: func(inner context.Context) error {
				if test.ends != nil {
					return test.ends
				}
				<-inner.Done()
				if test.ended {
					cancel()
				}
				return inner.Err()
			}}, live)
			if test.lost {
				live.Changed(t.Context(), []byte(rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", other32)))), nil)
			}
			if err := source.Follow(ctx, storage.Position{Revision: 1}, nil); !test.want(err) {
				t.Errorf("Follow: got %v", err)
			}
		})
	}
}

// TestPermanentlyCorruptValueDoesNotHideReturnOfPlugin checks that a value that waits for a plugin is
// decrypted when the plugin returns, although a permanently corrupt value follows it.
func TestPermanentlyCorruptValueDoesNotHideReturnOfPlugin(t *testing.T) {
	plugin := kmstest.New(t)
	s := newRawStore()
	const damaged = "/registry/secrets/default/damaged"
	mustCreate(t, s.storeWith(openKMS(t, plugin, 5*time.Second, nil)), secretKey, plainValue())
	s.values[damaged] = []byte("k8s:enc:absent:v1:x")
	plugin.Stop()
	live := openKMS(t, plugin, 100*time.Millisecond, nil)
	source := newLoadedSource(t, fixedSource{
		[]storage.KeyValue{s.storedItem(secretKey), s.storedItem(damaged)},
		waitForEnd,
	}, live)
	ended := make(chan error, 1)
	go func() { ended <- source.Follow(t.Context(), storage.Position{Revision: 1}, nil) }()
	plugin.Start()
	select {
	case err := <-ended:
		if !errors.As(err, new(*storage.CompactedError)) {
			t.Errorf("got %v, want CompactedError", err)
		}
	case <-time.After(patience):
		t.Error("after the plugin returned: got no decryption, want CompactedError")
	}
}

// TestRetriedSamplesAreBounded checks that the number of retried samples is limited, and that the limit
// is fully used.
func TestRetriedSamplesAreBounded(t *testing.T) {
	const samples = 64
	plugin := kmstest.New(t)
	rawStore := newRawStore()
	pacing := func(pace *kms.Intervals) {
		*pace = kms.Intervals{
			HealthyInterval:   time.Hour,
			UnhealthyInterval: time.Hour,
			HealthyTTL:        time.Nanosecond,
			UnhealthyTTL:      time.Nanosecond,
			RefreshTimeout:    time.Nanosecond,
		}
	}
	sealing := openKMS(t, plugin, 5*time.Second, pacing)
	store := rawStore.storeWith(sealing)
	var lost []storage.KeyValue
	for i := range samples + 6 { // each with its own key
		id := fmt.Sprintf("key-%d", i)
		key := fmt.Sprintf("/registry/secrets/default/s%d", i)
		plugin.UseKey(id)
		if err := sealing.Current().Check(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, store, key, plainValue())
		lost = append(lost, rawStore.storedItem(key))
	}
	for i := range lost {
		plugin.RemoveKey(fmt.Sprintf("key-%d", i))
	}
	plugin.UseKey("another")
	for name, items := range map[string][]storage.KeyValue{
		"more keys than samples":               lost,
		"as many keys, one of them repeatedly": slices.Concat(lost[:samples], slices.Repeat(lost[:1], 10)),
	} {
		t.Run(name, func(t *testing.T) {
			live := openKMS(t, plugin, 5*time.Second, pacing)
			source := newLoadedSource(t, fixedSource{items, waitForEnd}, live)
			before := plugin.Calls("Decrypt")
			ended := make(chan error, 1)
			go func() { ended <- source.Follow(t.Context(), storage.Position{Revision: 1}, nil) }()
			awaitTrue(t, "retries", func() bool { return plugin.Calls("Decrypt") >= before+samples })
			// All retries finish before Follow detects the new configuration.
			if !live.Changed(t.Context(), []byte(rulesYAML(ruleYAML("secrets", identityTransformer))), nil) {
				t.Fatal("valid configuration: got it rejected, want it applied")
			}
			if err := <-ended; !errors.As(err, new(*storage.ReopenedError)) {
				t.Errorf("got %v, want ReopenedError", err)
			}
			if n := plugin.Calls("Decrypt") - before; n != samples {
				t.Errorf("retried %d keys, want %d", n, samples)
			}
		})
	}
}
