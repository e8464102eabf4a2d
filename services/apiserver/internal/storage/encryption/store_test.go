package encryption_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
	"binnacle/services/apiserver/internal/storage/storagetest"
)

// TestConformance runs the conformance suite on a store with encryption.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("slow suite")
	}
	resources := encryption.NewResources("/registry/", map[string]schema.GroupResource{
		"/registry/pods/": {Resource: "pods"}, "/registry/nodes/": {Resource: "nodes"},
	})
	storagetest.Run(t, func(t *testing.T) storage.Interface {
		return encryption.NewStore(etcdtest.Embedded(t),
			openConfig(t, rulesYAML(ruleYAML("'*.*'", keysYAML("aesgcm", key32)))), resources, nil)
	})
}

// fixture is a watch cache and an encrypting store on an etcd.
type fixture struct {
	raw     storage.Interface
	live    *encryption.Live
	store   *encryption.Store
	cache   *watchcache.Cache
	secrets *watchcache.Store
}

func newFixture(t *testing.T, live *encryption.Live) *fixture {
	t.Helper()
	return newFixtureOn(t, etcdtest.Embedded(t), live)
}

// newFixtureOn returns an encrypting store over raw, with a watch cache of secrets.
func newFixtureOn(t *testing.T, raw storage.Interface, live *encryption.Live) *fixture {
	t.Helper()
	created := &fixture{raw: raw, live: live, store: encryption.NewStore(raw, live, builtIn(), nil)}
	var err error
	created.cache, err = watchcache.New(watchcache.Config{
		Source:          encryption.NewSource(watchcachetest.NewSource(raw, "/registry/"), live, builtIn(), nil),
		CurrentRevision: raw,
		HistoryReader:   created.store,
		Resources: []watchcache.ResourceConfig{{
			Name:   "secrets",
			Prefix: "/registry/secrets/",
			Attributes: func(key string, value []byte) (attributes.Attributes, error) {
				ns, name := filepath.Split(key[len("/registry/secrets/"):])
				return attributes.Attributes{Namespace: filepath.Clean(ns), Name: name}, nil
			},
		}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- created.cache.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := created.cache.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	created.secrets = created.cache.Store("secrets")
	return created
}

// cachedValue returns the cached value of a key and why it is corrupt.
func (w *fixture) cachedValue(t *testing.T, key string) (string, error) {
	t.Helper()
	if _, err := w.cache.MostRecent(t.Context()); err != nil {
		t.Fatal(err)
	}
	e, ok := w.secrets.Get(key)
	if !ok {
		return "", storage.ErrNotFound
	}
	return string(e.Stored()), e.Corrupt()
}

// TestCacheHoldsDecryptedValues checks that the cache has decrypted values, resumes by the stored
// ones, and holds corrupt objects beside readable ones.
func TestCacheHoldsDecryptedValues(t *testing.T) {
	fixture := newFixture(t, openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32)))))
	mustCreate(t, fixture.store, secretKey, plainValue())
	if got, err := fixture.cachedValue(t, secretKey); got != string(plainValue()) || err != nil {
		t.Errorf("got %.20q, %v, want the plain value", got, err)
	}
	stored, _, err := fixture.raw.Get(t.Context(), secretKey, 0)
	if err != nil || bytes.Contains(stored.Value, []byte("xxx")) {
		t.Fatalf("got stored value %.40q, %v, want it encrypted", stored.Value, err)
	}
	const moved = "/registry/secrets/default/moved"
	watch, err := fixture.secrets.Watch(watchcache.WatchOptions{
		Selection:     objects.Selection{ExcludeCorrupt: true},
		AfterRevision: fixture.cache.Revision(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if _, err := fixture.raw.Create(t.Context(), moved, stored.Value, storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := fixture.cachedValue(t, moved); got != "" || err == nil || err.Error() != "cipher: message authentication failed" {
		t.Errorf("value copied from another key: got %.20q, %v, want no value and an authentication error", got, err)
	}
	mustCreate(t, fixture.store, "/registry/secrets/default/after", plainValue())
	evs, err := watch.Next(t.Context(), nil)
	if err != nil || len(evs) != 1 || evs[0].Entry.Name() != "after" {
		t.Errorf("got events %v, %v, want ADDED after", evs, err)
	}
	// The corrupt object was not reported, so neither is its deletion.
	remove := func(key string) {
		t.Helper()
		kv, _, err := fixture.raw.Get(t.Context(), key, 0)
		if err == nil {
			_, err = fixture.raw.Delete(t.Context(), key, kv.ModRevision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	remove(moved)
	remove("/registry/secrets/default/after")
	evs, err = watch.Next(t.Context(), nil)
	if err != nil || len(evs) != 1 || evs[0].Type != watchcache.Deleted || evs[0].Entry.Name() != "after" {
		t.Errorf("got events %v, %v, want DELETED after", evs, err)
	}
}

// TestDeletionOfCorruptObjectExpiresWatch checks that the deletion of an object that was never
// readable expires watches. They may know the object from another replica, and its last state is
// unknown.
func TestDeletionOfCorruptObjectExpiresWatch(t *testing.T) {
	raw := etcdtest.Embedded(t)
	revision, err := raw.Create(t.Context(), secretKey, []byte("k8s:enc:aesgcm:v1:gone:x"), storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := newFixtureOn(t, raw, openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32)))))
	watch, err := w.secrets.Watch(watchcache.WatchOptions{
		Selection:     objects.Selection{ExcludeCorrupt: true, Namespace: "default"},
		AfterRevision: w.cache.Revision(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if _, err := raw.Delete(t.Context(), secretKey, revision); err != nil {
		t.Fatal(err)
	}
	var expired *watchcache.ExpiredError
	if evs, err := watch.Next(t.Context(), nil); !errors.As(err, &expired) {
		t.Errorf("got events %v, %v, want ExpiredError", evs, err)
	}
}

// TestWatchersSkipCorruptVersions checks that watchers receive the readable versions and the
// deletion.
func TestWatchersSkipCorruptVersions(t *testing.T) {
	fixture := newFixture(t, openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32)))))
	mustCreate(t, fixture.store, secretKey, plainValue())
	revision, err := fixture.cache.MostRecent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var watchers []*watchcache.Watcher
	for _, name := range []string{"", "s"} {
		watch, err := fixture.secrets.Watch(watchcache.WatchOptions{
			Selection:     objects.Selection{ExcludeCorrupt: true, Name: name},
			AfterRevision: revision,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		watchers = append(watchers, watch)
	}
	modRevision := revision
	update := func(s storage.Interface, value string) {
		t.Helper()
		if modRevision, err = s.Update(t.Context(), secretKey, []byte(value), modRevision, storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	update(fixture.raw, "k8s:enc:aesgcm:v1:k1:damaged")
	update(fixture.store, "again")
	update(fixture.raw, "k8s:enc:aesgcm:v1:k1:damaged")
	update(fixture.raw, "k8s:enc:aesgcm:v1:gone:damaged")
	if _, err := fixture.raw.Delete(t.Context(), secretKey, modRevision); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, fixture.store, secretKey, []byte("third"))
	for _, watch := range watchers {
		var got []string
		for len(got) < 3 {
			evs, err := watch.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range evs {
				got = append(got, fmt.Sprintf("%s %.5s", e.Type, e.Entry.Stored()))
			}
		}
		if want := "[MODIFIED again DELETED again ADDED third]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

// TestReloadAppliesOnlyValidFiles checks that a valid file is applied and an invalid one is not, and that values become
// readable or corrupt without a restart.
func TestReloadAppliesOnlyValidFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "enc.yaml")
	first := rulesYAML(ruleYAML("secrets", keysYAML("aescbc", key32)))
	writeConfig(t, file, first)
	live, err := encryption.Open(t.Context(), file, true, newBuilder(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(live.Close)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- live.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	fixture := newFixture(t, live)
	mustCreate(t, fixture.store, secretKey, plainValue())
	const damaged = "/registry/secrets/default/damaged"
	s := newRawStore()
	mustCreate(t, s.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("secretbox", key32))))), damaged, plainValue())
	if _, err := fixture.raw.Create(t.Context(), damaged, s.values[damaged], storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := fixture.cachedValue(t, damaged); err == nil {
		t.Error("value of an unknown key: got it readable, want it corrupt")
	}
	apply := func(content string) {
		t.Helper()
		was := live.Current()
		writeConfig(t, file, content)
		awaitTrue(t, "configuration applied", func() bool { return live.Current() != was })
	}
	apply(rulesYAML(ruleYAML("secrets", keysYAML("secretbox", key32), keysYAML("aescbc", key32))))
	awaitTrue(t, "readable", func() bool { _, err := fixture.cachedValue(t, damaged); return err == nil })
	if got, err := fixture.cachedValue(t, secretKey); got != string(plainValue()) || err != nil {
		t.Errorf("got %.20q, %v, want the plain value", got, err)
	}
	before := live.Current()
	writeConfig(t, file, rulesYAML(ruleYAML("secrets", keysYAML("aescbc", "short"))))
	next := rulesYAML(ruleYAML("secrets", identityTransformer))
	// Files are read in order: when the next one is applied, this one has been read.
	mustCreate(t, fixture.store, "/registry/secrets/default/kept", plainValue())
	if before != live.Current() {
		t.Error("invalid configuration: got it applied, want it rejected")
	}
	apply(next)
	awaitTrue(t, "the value to become corrupt", func() bool { _, err := fixture.cachedValue(t, secretKey); return err != nil })
}

// TestRotationLosesNoWriteUnderLoad checks that during rotations every read returns a written value, and no
// acknowledged write is lost.
func TestRotationLosesNoWriteUnderLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "enc.yaml")
	firstKey := keysYAML("aesgcm", key32)
	secondKey := keysYAML("secretbox", other32)
	writeConfig(t, file, rulesYAML(ruleYAML("secrets", firstKey)))
	live, err := encryption.Open(t.Context(), file, true, newBuilder(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(live.Close)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- live.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	fixture := newFixture(t, live)
	var stop atomic.Bool
	var work sync.WaitGroup
	const writers = 4
	var written [writers]atomic.Int64
	for i := range writers {
		key := fmt.Sprintf("/registry/secrets/default/s%d", i)
		mustCreate(t, fixture.store, key, []byte("0"))
		work.Go(func() { // counts up by compare-and-swap
			for n := int64(0); !stop.Load(); {
				kv, _, err := fixture.store.Get(ctx, key, 0)
				if err != nil || string(kv.Value) != fmt.Sprint(n) {
					t.Errorf("%s: got %q, want %d, %v", key, kv.Value, n, err)
					return
				}
				if _, err := fixture.store.Update(ctx, key, fmt.Append(nil, n+1), kv.ModRevision, storage.WriteOptions{}); err != nil {
					t.Error(err)
					return
				}
				n++
				written[i].Store(n)
			}
		})
		work.Go(func() {
			last := int64(0)
			for !stop.Load() {
				least := written[i].Load()
				kv, _, err := fixture.store.Get(ctx, key, 0)
				var n int64
				if _, scan := fmt.Sscan(string(kv.Value), &n); err != nil || scan != nil || n < max(last, least) {
					t.Errorf("%s: got %q, %v, want a number from %d on", key, kv.Value, err, max(last, least))
					return
				}
				last = n
			}
		})
	}
	for _, c := range []string{
		rulesYAML(ruleYAML("secrets", firstKey, secondKey)), rulesYAML(ruleYAML("secrets", secondKey, firstKey)), rulesYAML(ruleYAML("secrets", firstKey, secondKey)),
		rulesYAML(ruleYAML("secrets", firstKey, secondKey, identityTransformer)),
		rulesYAML(ruleYAML("secrets", identityTransformer, firstKey, secondKey)), rulesYAML(ruleYAML("secrets", secondKey, firstKey, identityTransformer)),
	} {
		was := live.Current()
		writeConfig(t, file, c)
		awaitTrue(t, "configuration applied", func() bool { return live.Current() != was })
	}
	stop.Store(true)
	work.Wait()
	for i := range writers {
		key := fmt.Sprintf("/registry/secrets/default/s%d", i)
		if got, err := fixture.cachedValue(t, key); got != fmt.Sprint(written[i].Load()) || err != nil {
			t.Errorf("%s: got %q, %v, want the last write, %d", key, got, err, written[i].Load())
		}
	}
}

// TestCorruptValuesRecoverWhenPluginReturns checks that cached values that could not be decrypted
// while the plugin was gone become readable once it returns.
func TestCorruptValuesRecoverWhenPluginReturns(t *testing.T) {
	p := newPluginWithValue(t)
	p.plugin.Stop()
	live := openKMS(t, p.plugin, 100*time.Millisecond, nil)
	w := newFixtureOn(t, p.store, live)
	mustCreate(t, encryption.NewStore(w.raw, encryption.NewIdentity(), builtIn(), nil), "/registry/secrets/default/plain", []byte("plain"))
	if _, err := w.cachedValue(t, secretKey); err == nil {
		t.Error("without the plugin: got a readable value, want a corrupt one")
	}
	p.plugin.Start()
	awaitTrue(t, "readable", func() bool { got, err := w.cachedValue(t, secretKey); return err == nil && got == string(plainValue()) })
}

// TestHangingDecryptionDoesNotBlockOtherValues checks a plugin that is healthy but does not decrypt. Values
// configuration its keys are corrupt, everything else works, and the values become readable when it
// responds.
func TestHangingDecryptionDoesNotBlockOtherValues(t *testing.T) {
	plugin := newPluginWithValue(t)
	plugin.plugin.HangMethod("Decrypt")
	live := openKMS(t, plugin.plugin, time.Hour, nil)
	fixture := newFixtureOn(t, plugin.store, live)
	if _, err := fixture.cachedValue(t, secretKey); err == nil {
		t.Error("hanging decryption: got a readable value, want a corrupt one")
	}
	revision, err := plugin.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A change that needs a key precedes one that does not.
	stored, _, err := plugin.store.Get(t.Context(), secretKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fixture.raw.Create(t.Context(), "/registry/secrets/default/again", stored.Value, storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, encryption.NewStore(fixture.raw, encryption.NewIdentity(), builtIn(), nil), "/registry/secrets/default/plain", []byte("plain"))
	if got, err := fixture.cachedValue(t, "/registry/secrets/default/plain"); got != "plain" || err != nil {
		t.Errorf("after revision %d: got %.20q, %v, want %q", revision, got, err, "plain")
	}
	if err := live.Current().Check(t.Context(), 0); err != nil {
		t.Errorf("Check of a healthy plugin: got %v", err)
	}
	plugin.plugin.Resume()
	awaitTrue(t, "readable", func() bool {
		got, err := fixture.cachedValue(t, secretKey)
		return err == nil && got == string(plainValue())
	})
}

// TestNarrowerRuleMayLoseValues checks that values of a wider rule become corrupt under a narrower
// one without its key, although the wider rule still exists.
func TestNarrowerRuleMayLoseValues(t *testing.T) {
	for _, test := range []struct {
		name, before, after string
		lost                bool
	}{
		{
			name:   "narrower, another key",
			before: rulesYAML(ruleYAML("'*.*'", keysYAML("aescbc", key32))),
			after:  rulesYAML(ruleYAML("secrets", keysYAML("secretbox", key32)), ruleYAML("'*.*'", keysYAML("aescbc", key32))),
			lost:   true,
		},
		{
			name:   "narrower, both keys",
			before: rulesYAML(ruleYAML("'*.*'", keysYAML("aescbc", key32))),
			after: rulesYAML(ruleYAML("secrets", keysYAML("secretbox", key32), keysYAML("aescbc", key32)),
				ruleYAML("'*.*'", keysYAML("aescbc", key32))),
		},
		{
			name:   "for the group",
			before: rulesYAML(ruleYAML("'*.*'", keysYAML("aescbc", key32))),
			after:  rulesYAML(ruleYAML("'*.'", keysYAML("secretbox", key32)), ruleYAML("'*.*'", keysYAML("aescbc", key32))),
			lost:   true,
		},
		{
			name: "removed, and the wider one has fewer keys",
			before: rulesYAML(ruleYAML("secrets", keysYAML("secretbox", key32), keysYAML("aescbc", key32)),
				ruleYAML("'*.*'", keysYAML("secretbox", key32))),
			after: rulesYAML(ruleYAML("'*.*'", keysYAML("secretbox", key32))),
			lost:  true,
		},
		{
			name:   "for another resource",
			before: rulesYAML(ruleYAML("'*.*'", keysYAML("aescbc", key32))),
			after: rulesYAML(ruleYAML("configmaps", keysYAML("aescbc", key32), identityTransformer),
				ruleYAML("'*.*'", keysYAML("aescbc", key32))),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, after := openConfig(t, test.before).Current(), openConfig(t, test.after).Current()
			if got := !after.Covers(before); got != test.lost {
				t.Errorf("values become corrupt: got %t, want %t", got, test.lost)
			}
			if !after.Covers(after) || !before.Covers(before) {
				t.Error("configuration compared with itself: got values lost, want all covered")
			}
		})
	}
}
