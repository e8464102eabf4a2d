package encryption_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

// batchSource is a source with one batch.
type batchSource struct{ batch storage.Batch }

func (batchSource) Load(context.Context, func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, nil
}

func (s batchSource) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	if err := apply(s.batch); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (batchSource) Progress(context.Context) error { return nil }

// TestConfigurationAppliedDuringDecryptionReopensValues checks that values that the old configuration could not
// decrypt are decrypted again with the new one, if it is applied while a batch is being decrypted.
func TestConfigurationAppliedDuringDecryptionReopensValues(t *testing.T) {
	p := kmstest.New(t)
	rawStore := newRawStore()
	const local, far = "/registry/secrets/default/local", "/registry/secrets/default/far"
	mustCreate(t, rawStore.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("secretbox", key32))))), local, plainValue())
	mustCreate(t, rawStore.storeWith(openKMS(t, p, 5*time.Second, nil)), far, plainValue())

	file := filepath.Join(t.TempDir(), "enc.yaml")
	plugin := fmt.Sprintf("kms: {apiVersion: v2, name: rec, endpoint: '%s', timeout: 5s}", p.Endpoint())
	writeConfig(t, file, rulesYAML(ruleYAML("secrets", plugin)))
	b := newBuilder(t)
	b.Intervals = shortIntervals()
	live, err := encryption.Open(t.Context(), file, true, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(live.Close)
	source := encryption.NewSource(batchSource{storage.Batch{
		Revision: 3,
		Events: []storage.Event{
			{Type: storage.Created, Key: local, Revision: 2, CreateRevision: 2, Value: rawStore.values[local]},
			{Type: storage.Created, Key: far, Revision: 3, CreateRevision: 3, Value: rawStore.values[far]},
		},
	}}, live, builtIn(), nil)
	ctx, cancel := context.WithCancel(context.Background())
	running := make(chan error)
	go func() { running <- live.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-running })

	at, err := source.Load(ctx, func([]storage.KeyValue) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	p.HangMethod("Decrypt")
	before := p.Calls("Decrypt")
	ended := make(chan error, 1)
	go func() { ended <- source.Follow(ctx, at, func(storage.Batch) error { return nil }) }()
	awaitTrue(t, "a Decrypt call", func() bool { return p.Calls("Decrypt") > before })
	was := live.Current()
	writeConfig(t, file, rulesYAML(ruleYAML("secrets", plugin, keysYAML("secretbox", key32))))
	awaitTrue(t, "configuration applied", func() bool { return live.Current() != was })
	p.Resume()
	select {
	case err := <-ended:
		if !errors.As(err, new(*storage.ReopenedError)) {
			t.Errorf("got %v, want ReopenedError", err)
		}
	case <-time.After(patience):
		t.Error("new configuration: got no decryption, want ReopenedError")
	}
}
