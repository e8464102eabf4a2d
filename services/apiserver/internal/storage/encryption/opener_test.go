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

// TestResourcesOfKeys: what is of none is stored as it is, whatever rules say of all.
func TestResourcesOfKeys(t *testing.T) {
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
		gr, ok := builtIn().Of(key)
		if ok != (want != "") || ok && gr.String() != want {
			t.Errorf("%s is of %q, %v", key, gr, ok)
		}
	}
}

// TestBatchesAreShared: who opens one leaves it as it was, and a deletion has nothing to open.
func TestBatchesAreShared(t *testing.T) {
	const first, second, open1 = "/registry/secrets/default/a", "/registry/secrets/default/b", "/registry/configmaps/default/c"
	live, s := open(t, rules(rule("secrets", keys("aesgcm", key32)))), newShelf()
	create(t, s.at(live), first, plain())
	create(t, s.at(live), second, plain())
	batch := storage.Batch{Revision: 5, Events: []storage.Event{
		{Type: storage.Created, Key: open1, Revision: 2, CreateRevision: 2, Value: []byte("open")},
		{Type: storage.Created, Key: first, Revision: 3, CreateRevision: 3, Value: s.values[first]},
		{Type: storage.Created, Key: second, Revision: 4, CreateRevision: 4, Value: s.values[second]},
		{Type: storage.Deleted, Key: first, Revision: 5},
	}}
	source := encryption.NewSource(told{batch}, live, builtIn(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	at, err := source.Load(ctx, func([]storage.KeyValue) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var seen storage.Batch
	_ = source.Follow(ctx, at, func(b storage.Batch) error { seen = b; cancel(); return nil }) // the context's
	if len(seen.Events) != 4 {
		t.Fatalf("%d events are told", len(seen.Events))
	}
	for i, want := range [][]byte{[]byte("open"), plain(), plain(), nil} {
		e := seen.Events[i]
		if !bytes.Equal(e.Value, want) || (e.Seal != nil) != (i == 1 || i == 2) {
			t.Errorf("%d is told as %.20q, %+v", i, e.Value, e.Seal)
		}
	}
	for i, key := range []string{1: first, 2: second} {
		if e := batch.Events[i]; key != "" && (e.Seal != nil || !bytes.Equal(e.Value, s.values[key])) {
			t.Errorf("%d has become %.20q, %+v", i, e.Value, e.Seal)
		}
	}
}

// TestValuesWithoutARule are plain, and what is sealed among them is told as unreadable.
func TestValuesWithoutARule(t *testing.T) {
	s := newShelf()
	sealed := s.at(open(t, rules(rule("secrets", keys("aesgcm", key32)))))
	create(t, sealed, secretKey, plain())
	other := s.at(open(t, rules(rule("configmaps", keys("aesgcm", key32)))))
	if got, _, err := get(t, other, secretKey); err == nil || got != "" || !strings.Contains(err.Error(), "identity transformer tried to read encrypted data") {
		t.Errorf("%.20q, %v", got, err)
	}
	const another = "/registry/secrets/default/plain"
	create(t, other, another, plain())
	if got, stale, err := get(t, other, another); got != string(plain()) || stale || err != nil {
		t.Errorf("%.20q, stale %v, %v", got, stale, err)
	}
}

// TestWhatCannotBeSealedIsNotWritten, neither as it is nor as nothing.
func TestWhatCannotBeSealedIsNotWritten(t *testing.T) {
	raw := etcdtest.Embedded(t)
	s := encryption.NewStore(raw, open(t, rules(rule("secrets", "identity: {}"))), builtIn(), nil)
	var refused *storage.SealError
	if _, err := s.Create(t.Context(), secretKey, []byte("k8s:enc:x"), storage.WriteOptions{}); !errors.As(err, &refused) {
		t.Errorf("created: %v", err)
	}
	create(t, s, secretKey, plain())
	kv, _, err := raw.Get(t.Context(), secretKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), secretKey, []byte("k8s:enc:x"), kv.ModRevision, storage.WriteOptions{}); !errors.As(err, &refused) {
		t.Errorf("updated: %v", err)
	}
	if now, _, err := raw.Get(t.Context(), secretKey, 0); err != nil || !bytes.Equal(now.Value, plain()) {
		t.Errorf("stored %.20q, %v", now.Value, err)
	}
}

// TestPlainValuesAreNotCovered by a configuration that opens sealed ones alone.
func TestPlainValuesAreNotCovered(t *testing.T) {
	before := open(t, rules(rule("configmaps", keys("aesgcm", key32)))).Current()
	for provider, want := range map[string]bool{keys("secretbox", key32): false, "identity: {}": true} {
		now := open(t, rules(rule("configmaps", keys("aesgcm", key32)), rule("secrets", provider))).Current()
		if now.Covers(before) != want {
			t.Errorf("%s covers plain values: %v", provider, !want)
		}
	}
}
