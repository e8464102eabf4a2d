package encryption_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestResourceIsDerivedFromKey checks the resources of keys. A key without a resource is never
// encrypted.
func TestResourceIsDerivedFromKey(t *testing.T) {
	for key, want := range map[string]string{
		"/registry/secrets/default/s":            "secrets",
		"/registry/services/specs/default/s":     "services",
		"/registry/example.com/things/default/t": "things.example.com",
		"/registry/ranges/serviceips":            "",
		"/registry/masterleases/10.0.0.1":        "",
		"/registry/peerserverleases/a/b":         "",
		"/registry/.com/things/t":                "",
		"/registry/example.com/things":           "",
		"/registry/example.com//t":               "",
		"/registry/secrets":                      "",
		"/registry/":                             "",
		"secrets/default/s":                      "",
		"/other/example.com/things/t":            "",
		"example.com/things/t":                   "",
	} {
		gr, ok := builtIn().ForKey(key)
		if ok != (want != "") || ok && gr.String() != want {
			t.Errorf("%s: got %q, %v, want %q", key, gr, ok, want)
		}
	}
}

// TestSharedBatchIsNotModified checks that decryption leaves the batch of the source unchanged.
// Deletions have nothing to decrypt.
func TestSharedBatchIsNotModified(t *testing.T) {
	const first, second, plainKey = "/registry/secrets/default/a", "/registry/secrets/default/b", "/registry/configmaps/default/c"
	live := openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32))))
	rawStore := newRawStore()
	mustCreate(t, rawStore.storeWith(live), first, plainValue())
	mustCreate(t, rawStore.storeWith(live), second, plainValue())
	batch := storage.Batch{
		Revision: 5,
		Events: []storage.Event{
			{Type: storage.Created, Key: plainKey, Revision: 2, CreateRevision: 2, Value: []byte("open")},
			{Type: storage.Created, Key: first, Revision: 3, CreateRevision: 3, Value: rawStore.values[first]},
			{Type: storage.Created, Key: second, Revision: 4, CreateRevision: 4, Value: rawStore.values[second]},
			{Type: storage.Deleted, Key: first, Revision: 5},
		},
	}
	source := encryption.NewSource(batchSource{batch}, live, builtIn(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	at, err := source.Load(ctx, func([]storage.KeyValue) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var decrypted storage.Batch
	_ = source.Follow(ctx, at, func(b storage.Batch) error { decrypted = b; cancel(); return nil }) // the error of the context
	if len(decrypted.Events) != 4 {
		t.Fatalf("got %d events, want 4", len(decrypted.Events))
	}
	for i, want := range [][]byte{[]byte("open"), plainValue(), plainValue(), nil} {
		event := decrypted.Events[i]
		if !bytes.Equal(event.Value, want) || (event.Seal != nil) != (i == 1 || i == 2) {
			t.Errorf("event %d: got %.20q, seal %+v, want %.20q, and a seal on events 1 and 2 only", i, event.Value, event.Seal, want)
		}
	}
	for i, key := range []string{1: first, 2: second} {
		if event := batch.Events[i]; key != "" && (event.Seal != nil || !bytes.Equal(event.Value, rawStore.values[key])) {
			t.Errorf("event %d of the source: got %.20q, seal %+v, want it unchanged", i, event.Value, event.Seal)
		}
	}
}

// TestValuesWithoutRuleAreStoredPlain checks that values without a rule are stored plain, and that an
// encrypted value without a rule is corrupt.
func TestValuesWithoutRuleAreStoredPlain(t *testing.T) {
	s := newRawStore()
	encrypting := s.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32)))))
	mustCreate(t, encrypting, secretKey, plainValue())
	withoutRule := s.storeWith(openConfig(t, rulesYAML(ruleYAML("configmaps", keysYAML("aesgcm", key32)))))
	if got, _, err := getValue(t, withoutRule, secretKey); err == nil || got != "" ||
		!strings.Contains(err.Error(), "identity transformer tried to read encrypted data") {
		t.Errorf("without a key: got %.20q, %v, want no value and an error of the identity transformer", got, err)
	}
	const another = "/registry/secrets/default/plain"
	mustCreate(t, withoutRule, another, plainValue())
	if got, stale, err := getValue(t, withoutRule, another); got != string(plainValue()) || stale || err != nil {
		t.Errorf("got %.20q, stale %v, %v, want the plain value, not stale", got, stale, err)
	}
}

// TestUnencryptableValueIsNotWritten checks that Create and Update of a value that cannot be
// encrypted return SealError and leave the store unchanged.
func TestUnencryptableValueIsNotWritten(t *testing.T) {
	raw := etcdtest.Embedded(t)
	s := encryption.NewStore(raw, openConfig(t, rulesYAML(ruleYAML("secrets", "identity: {}"))), builtIn(), nil)
	var sealError *storage.SealError
	if _, err := s.Create(t.Context(), secretKey, []byte("k8s:enc:x"), storage.WriteOptions{}); !errors.As(err, &sealError) {
		t.Errorf("Create: got %v, want SealError", err)
	}
	mustCreate(t, s, secretKey, plainValue())
	kv, _, err := raw.Get(t.Context(), secretKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), secretKey, []byte("k8s:enc:x"), kv.ModRevision,
		storage.WriteOptions{}); !errors.As(err, &sealError) {
		t.Errorf("Update: got %v, want SealError", err)
	}
	if now, _, err := raw.Get(t.Context(), secretKey, 0); err != nil || !bytes.Equal(now.Value, plainValue()) {
		t.Errorf("got stored value %.20q, %v, want the plain one", now.Value, err)
	}
}

// TestOnlyIdentityCoversPlainValues checks that a new rule keeps existing plain values readable only
// if it has the identity provider.
func TestOnlyIdentityCoversPlainValues(t *testing.T) {
	before := openConfig(t, rulesYAML(ruleYAML("configmaps", keysYAML("aesgcm", key32)))).Current()
	for provider, want := range map[string]bool{keysYAML("secretbox", key32): false, "identity: {}": true} {
		now := openConfig(t, rulesYAML(ruleYAML("configmaps", keysYAML("aesgcm", key32)), ruleYAML("secrets", provider))).Current()
		if got := now.Covers(before); got != want {
			t.Errorf("%s covers plain values: got %v, want %v", provider, got, want)
		}
	}
}
