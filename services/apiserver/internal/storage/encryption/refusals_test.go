package encryption_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kmstest"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// restart lets a plugin be gone for so long that it is noticed.
func restart(t *testing.T, p *kmstest.Plugin, live *encryption.Live) {
	t.Helper()
	p.Stop()
	eventually(t, "ill", func() bool { return live.Current().Check(t.Context(), 0) != nil })
	p.Start()
}

// TestAPluginThatThinksAgain: whatever it said of a key, it may answer otherwise once
// somebody has seen to it, and then values are shown that are the same in the store.
func TestAPluginThatThinksAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse func(p *kmstest.Plugin)
	}{
		{"no such key", func(p *kmstest.Plugin) { p.Fail("key-1", codes.NotFound) }},
		{"it cannot be a key", func(p *kmstest.Plugin) { p.Fail("key-1", codes.InvalidArgument) }},
		{"the key is disabled", func(p *kmstest.Plugin) { p.Fail("key-1", codes.FailedPrecondition) }},
		{"the plugin may not use it", func(p *kmstest.Plugin) { p.Fail("key-1", codes.PermissionDenied) }},
		{"it does not say why", func(p *kmstest.Plugin) { p.Fail("key-1", codes.Unknown) }},
		{"another key", func(p *kmstest.Plugin) { p.Garble(true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPluginWithValue(t)
			c.refuse(p.plugin)
			live := openKMS(t, p.plugin, 500*time.Millisecond, nil)
			w := joined(t, p.raw, live)
			if got, err := w.shows(t, secretKey); err == nil {
				t.Fatalf("it is shown as %.9q", got)
			}
			p.plugin.Fail("key-1", codes.OK)
			p.plugin.Garble(false)
			restart(t, p.plugin, live)
			eventually(t, "readable", func() bool { got, err := w.shows(t, secretKey); return err == nil && got == string(plain()) })
		})
	}
}

// TestALostKeyHurtsNoOther: values of other keys are shown from the beginning, and the
// plugin is not asked for the same key with each value.
func TestALostKeyHurtsNoOther(t *testing.T) {
	for _, code := range []codes.Code{codes.Unknown, codes.Internal, codes.PermissionDenied, codes.InvalidArgument} {
		t.Run(code.String(), func(t *testing.T) {
			p, raw := kmstest.New(t), etcdtest.Embedded(t)
			seal := func() *encryption.Store {
				return encryption.NewStore(raw, openKMS(t, p, 5*time.Second, nil), builtIn(), nil)
			}
			const lost = 40
			lose := seal()
			for i := range lost {
				create(t, lose, fmt.Sprintf("/registry/secrets/default/a%d", i), plain())
			}
			p.UseKey("key-2")
			create(t, seal(), secretKey, plain())
			p.Fail("key-1", code)
			w := joined(t, raw, openKMS(t, p, 5*time.Second, func(pace *kms.Pace) { pace.Doubt = time.Hour }))
			const after = "/registry/secrets/default/t"
			create(t, seal(), after, plain()) // with a seed that is not known here
			for _, key := range []string{secretKey, after} {
				if got, err := w.shows(t, key); err != nil || got != string(plain()) {
					t.Errorf("%s is shown as %.9q, %v", key, got, err)
				}
			}
			if _, err := w.shows(t, "/registry/secrets/default/a0"); err == nil {
				t.Error("a value of the lost key is shown")
			}
			if n := p.Calls("Decrypt"); n >= lost {
				t.Errorf("the plugin was asked %d times to decrypt 3 keys", n)
			}
		})
	}
}

// TestLostKeysHideNoOther: however many keys are lost for good, one that can be had again
// is noticed.
func TestLostKeysHideNoOther(t *testing.T) {
	p, raw := kmstest.New(t), etcdtest.Embedded(t)
	for i := range 10 {
		create(t, encryption.NewStore(raw, openKMS(t, p, 5*time.Second, nil), builtIn(), nil), fmt.Sprintf("/registry/secrets/default/a%d", i), plain())
	}
	p.UseKey("key-2")
	create(t, encryption.NewStore(raw, openKMS(t, p, 5*time.Second, nil), builtIn(), nil), secretKey, plain())
	p.Fail("key-1", codes.Unknown)
	p.Fail("key-2", codes.Unknown)
	live := openKMS(t, p, 500*time.Millisecond, nil)
	w := joined(t, raw, live)
	if _, err := w.shows(t, secretKey); err == nil {
		t.Fatal("it can be read")
	}
	p.Fail("key-2", codes.OK)
	restart(t, p, live)
	eventually(t, "readable", func() bool { _, err := w.shows(t, secretKey); return err == nil })
}
