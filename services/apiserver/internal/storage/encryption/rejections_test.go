package encryption_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// restartPlugin stops a plugin until that is detected and starts it again.
func restartPlugin(t *testing.T, p *kmstest.Plugin, live *encryption.Live) {
	t.Helper()
	p.Stop()
	awaitTrue(t, "unhealthy", func() bool { return live.Current().Check(t.Context(), 0) != nil })
	p.Start()
}

// TestRejectedKeyMayRecover checks that values become readable when a plugin accepts a key that it
// rejected before, although the values in the store do not change.
func TestRejectedKeyMayRecover(t *testing.T) {
	for _, test := range []struct {
		name   string
		reject func(p *kmstest.Plugin)
	}{
		{name: "no such key", reject: func(p *kmstest.Plugin) { p.FailDecrypt("key-1", codes.NotFound) }},
		{name: "invalid key", reject: func(p *kmstest.Plugin) { p.FailDecrypt("key-1", codes.InvalidArgument) }},
		{name: "disabled key", reject: func(p *kmstest.Plugin) { p.FailDecrypt("key-1", codes.FailedPrecondition) }},
		{name: "no permission", reject: func(p *kmstest.Plugin) { p.FailDecrypt("key-1", codes.PermissionDenied) }},
		{name: "unknown error", reject: func(p *kmstest.Plugin) { p.FailDecrypt("key-1", codes.Unknown) }},
		{name: "another key", reject: func(p *kmstest.Plugin) { p.ReturnWrongKeys(true) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // each waits for calls and probes of its plugin
			p := newPluginWithValue(t)
			test.reject(p.plugin)
			live := openKMS(t, p.plugin, 500*time.Millisecond, nil)
			w := newFixtureOn(t, p.store, live)
			if got, err := w.cachedValue(t, secretKey); err == nil {
				t.Fatalf("before the key is accepted: got %.9q, want an error", got)
			}
			p.plugin.FailDecrypt("key-1", codes.OK)
			p.plugin.ReturnWrongKeys(false)
			restartPlugin(t, p.plugin, live)
			awaitTrue(t, "readable", func() bool {
				got, err := w.cachedValue(t, secretKey)
				return err == nil && got == string(plainValue())
			})
		})
	}
}

// TestLostKeyDoesNotAffectOthers checks that values of other keys are readable from the beginning,
// and that the plugin is not called for each value of a lost key.
func TestLostKeyDoesNotAffectOthers(t *testing.T) {
	for _, code := range []codes.Code{codes.Unknown, codes.Internal, codes.PermissionDenied, codes.InvalidArgument} {
		t.Run(code.String(), func(t *testing.T) {
			plugin := kmstest.New(t)
			raw := etcdtest.Embedded(t)
			seal := func() *encryption.Store {
				return encryption.NewStore(raw, openKMS(t, plugin, 5*time.Second, nil), builtIn(), nil)
			}
			const lost = 40
			lose := seal()
			for i := range lost {
				mustCreate(t, lose, fmt.Sprintf("/registry/secrets/default/a%d", i), plainValue())
			}
			plugin.UseKey("key-2")
			mustCreate(t, seal(), secretKey, plainValue())
			plugin.FailDecrypt("key-1", code)
			w := newFixtureOn(t, raw, openKMS(t, plugin, 5*time.Second, func(pace *kms.Intervals) { pace.RefreshTimeout = time.Hour }))
			const after = "/registry/secrets/default/t"
			mustCreate(t, seal(), after, plainValue()) // with an unknown seed
			for _, key := range []string{secretKey, after} {
				if got, err := w.cachedValue(t, key); err != nil || got != string(plainValue()) {
					t.Errorf("%s: got %.9q, %v, want the plain value", key, got, err)
				}
			}
			if _, err := w.cachedValue(t, "/registry/secrets/default/a0"); err == nil {
				t.Error("value of the lost key: got it readable, want it corrupt")
			}
			if n := plugin.Calls("Decrypt"); n >= lost {
				t.Errorf("got %d Decrypt calls for 3 keys, want fewer than %d", n, lost)
			}
		})
	}
}

// TestManyLostKeysDoNotHideRecovery checks that a recovered key is detected among permanently lost
// ones.
func TestManyLostKeysDoNotHideRecovery(t *testing.T) {
	plugin := kmstest.New(t)
	raw := etcdtest.Embedded(t)
	for i := range 10 {
		mustCreate(t, encryption.NewStore(raw, openKMS(t, plugin, 5*time.Second, nil), builtIn(), nil),
			fmt.Sprintf("/registry/secrets/default/a%d", i), plainValue())
	}
	plugin.UseKey("key-2")
	mustCreate(t, encryption.NewStore(raw, openKMS(t, plugin, 5*time.Second, nil), builtIn(), nil), secretKey, plainValue())
	plugin.FailDecrypt("key-1", codes.Unknown)
	plugin.FailDecrypt("key-2", codes.Unknown)
	live := openKMS(t, plugin, 500*time.Millisecond, nil)
	w := newFixtureOn(t, raw, live)
	if _, err := w.cachedValue(t, secretKey); err == nil {
		t.Fatal("value of a rejected key: got it readable, want it corrupt")
	}
	plugin.FailDecrypt("key-2", codes.OK)
	restartPlugin(t, plugin, live)
	awaitTrue(t, "readable", func() bool { _, err := w.cachedValue(t, secretKey); return err == nil })
}
