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
	"binnacle/services/apiserver/internal/storage/encryption/kmstest"
)

// kept is a stream of values that nobody changes.
type kept struct {
	items []storage.KeyValue
	// ends is called when the stream is to end, and says how it does.
	ends func(ctx context.Context) error
}

func (k kept) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Place, error) {
	return storage.Place{Revision: 1}, page(slices.Clone(k.items))
}

func (k kept) Follow(ctx context.Context, _ storage.Place, _ func(storage.Batch) error) error {
	return k.ends(ctx)
}

func (kept) Progress(context.Context) error { return nil }

// item is what a shelf has of a key.
func (s *shelf) item(key string) storage.KeyValue {
	return storage.KeyValue{Key: key, Value: s.values[key], ModRevision: 1, CreateRevision: 1}
}

// loaded is a source that has shown all that its stream has.
func loaded(t testing.TB, k kept, live *encryption.Live) *encryption.Source {
	t.Helper()
	source := encryption.NewSource(k, live, builtIn(), nil)
	if _, err := source.Load(t.Context(), func([]storage.KeyValue) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return source
}

func untilTheEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestHowAStreamEnds: with its own error, with that of the context, or with *storage.ReopenedError
// when every value is to be decrypted again.
func TestHowAStreamEnds(t *testing.T) {
	own := errors.New("own")
	reopened := func(err error) bool { return errors.As(err, new(*storage.ReopenedError)) }
	for _, c := range []struct {
		name  string
		lost  bool // the key
		ended bool // the context, meanwhile
		ends  error
		want  func(error) bool
	}{
		{name: "by itself", ends: own, want: func(err error) bool { return errors.Is(err, own) && !reopened(err) }},
		{name: "outdated", lost: true, want: reopened},
		{name: "outdated, at the end of all", lost: true, ended: true, want: func(err error) bool { return errors.Is(err, context.Canceled) && !reopened(err) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			live := openWith(t, builder(t), rules(rule("secrets", keys("aesgcm", key32))), true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			source := loaded(t, kept{ends: func(inner context.Context) error {
				if c.ends != nil {
					return c.ends
				}
				<-inner.Done()
				if c.ended {
					cancel()
				}
				return inner.Err()
			}}, live)
			if c.lost {
				live.Changed(t.Context(), []byte(rules(rule("secrets", keys("aesgcm", other32)))), nil)
			}
			if err := source.Follow(ctx, storage.Place{Revision: 1}, nil); !c.want(err) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// TestDamageHidesNoPluginThatComesBack: a value that can never be opened comes after one
// that waits for a plugin.
func TestDamageHidesNoPluginThatComesBack(t *testing.T) {
	p, s := kmstest.New(t), newShelf()
	const damaged = "/registry/secrets/default/damaged"
	create(t, s.at(openKMS(t, p, 5*time.Second, nil)), secretKey, plain())
	s.values[damaged] = []byte("k8s:enc:nobody:v1:x")
	p.Stop()
	live := openKMS(t, p, 100*time.Millisecond, nil)
	source := loaded(t, kept{[]storage.KeyValue{s.item(secretKey), s.item(damaged)}, untilTheEnd}, live)
	ended := make(chan error, 1)
	go func() { ended <- source.Follow(t.Context(), storage.Place{Revision: 1}, nil) }()
	p.Start()
	select {
	case err := <-ended:
		if !errors.As(err, new(*storage.CompactedError)) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("what could not be opened is left so")
	}
}

// TestFewSamplesAreTriedAgain, however many keys are lost, and all that there is room for.
func TestFewSamplesAreTriedAgain(t *testing.T) {
	const room = 64
	p, s := kmstest.New(t), newShelf()
	pacing := func(pace *kms.Pace) {
		*pace = kms.Pace{Well: time.Hour, Ill: time.Hour, WellKept: time.Nanosecond, IllKept: time.Nanosecond, Doubt: time.Nanosecond}
	}
	sealing := openKMS(t, p, 5*time.Second, pacing)
	store := s.at(sealing)
	var lost []storage.KeyValue
	for i := range room + 6 { // each with a key of its own
		id, key := fmt.Sprintf("key-%d", i), fmt.Sprintf("/registry/secrets/default/s%d", i)
		p.UseKey(id)
		if err := sealing.Current().Check(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		create(t, store, key, plain())
		lost = append(lost, s.item(key))
	}
	for i := range lost {
		p.Lose(fmt.Sprintf("key-%d", i))
	}
	p.UseKey("another")
	for name, items := range map[string][]storage.KeyValue{
		"more than there is room for":     lost,
		"as many, one of them ever again": slices.Concat(lost[:room], slices.Repeat(lost[:1], 10)),
	} {
		t.Run(name, func(t *testing.T) {
			live := openKMS(t, p, 5*time.Second, pacing)
			source := loaded(t, kept{items, untilTheEnd}, live)
			before := p.Calls("Decrypt")
			ended := make(chan error, 1)
			go func() { ended <- source.Follow(t.Context(), storage.Place{Revision: 1}, nil) }()
			eventually(t, "tried", func() bool { return p.Calls("Decrypt") >= before+room })
			// It is through with all of them before it sees that there is another configuration.
			if !live.Changed(t.Context(), []byte(rules(rule("secrets", identity))), nil) {
				t.Fatal("not taken up")
			}
			if err := <-ended; !errors.As(err, new(*storage.ReopenedError)) {
				t.Errorf("ended with %v", err)
			}
			if n := p.Calls("Decrypt") - before; n != room {
				t.Errorf("%d keys are tried again", n)
			}
		})
	}
}
