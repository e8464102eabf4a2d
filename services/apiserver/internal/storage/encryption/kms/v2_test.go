package kms_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"binnacle/services/apiserver/internal/storage/encryption/ciphers"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

// TestPluginStatusIsValidated checks the errors for invalid statuses.
func TestPluginStatusIsValidated(t *testing.T) {
	const unhealthy = "kmsv2 Provider rec is not healthy, error: "
	for _, test := range []struct {
		name        string
		breakPlugin func(*kmstest.Plugin)
		want        string
		label       string // label in metrics
	}{
		{name: "valid", breakPlugin: func(*kmstest.Plugin) {}},
		{name: "an earlier version", breakPlugin: func(p *kmstest.Plugin) { p.SetVersion("v2beta1") }},
		{
			name:        "another version",
			breakPlugin: func(p *kmstest.Plugin) { p.SetVersion("v3") },
			want:        unhealthy + "expected KMSv2 API version v2, got v3",
		},
		{
			name:        "another version and unhealthy",
			breakPlugin: func(p *kmstest.Plugin) { p.SetVersion("v3"); p.SetHealth("no") },
			want:        unhealthy + "[got unexpected healthz status: no, expected KMSv2 API version v2, got v3]",
		},
		{
			name:        "no key",
			breakPlugin: func(p *kmstest.Plugin) { p.UseKey("") },
			want:        unhealthy + `got invalid KMSv2 KeyID hash "": keyID is empty`,
			label:       "empty",
		},
		{
			name:        "a long key",
			breakPlugin: func(p *kmstest.Plugin) { p.UseKey(strings.Repeat("k", 1025)) },
			want:        "keyID is 1025 bytes",
			label:       "too_long",
		},
		{
			name:        "another key than it uses",
			breakPlugin: func(p *kmstest.Plugin) { p.EncryptWith("key-9") },
			want:        "but the response to an encryption has",
		},
		// kmstest masks with the last byte of the key ID. The mask of "Z" (0x5a) is zero.
		{
			name:        "encryption returns its input",
			breakPlugin: func(p *kmstest.Plugin) { p.UseKey("key-Z") },
			want:        "returned the plaintext from an encryption",
		},
		{
			name:        "encryption returns nothing",
			breakPlugin: func(p *kmstest.Plugin) { p.SetCiphertext([]byte{}) },
			want:        "response to an encryption: encrypted DEK source is empty",
		},
		{
			name:        "no response",
			breakPlugin: func(p *kmstest.Plugin) { p.HangMethod("Status") },
			want:        "failed to perform status section of the healthz check for KMS Provider rec, error: rpc error: code = DeadlineExceeded",
		},
		{
			name:        "no encryption",
			breakPlugin: func(p *kmstest.Plugin) { p.RejectCalls(true) },
			want:        unhealthy + "failed to rotate DEK of KMS provider rec: failed to encrypt DEK, error: rpc error: code = Internal",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := kmstest.New(t)
			reg := prometheus.NewRegistry()
			test.breakPlugin(p)
			m, err := kms.NewMetrics(reg)
			if err != nil {
				t.Fatal(err)
			}
			cfg := newConfig(t, p)
			cfg.Metrics = m
			if strings.Contains(test.want, "DeadlineExceeded") {
				cfg.Timeout = 100 * time.Millisecond
			}
			checkError(t, "Check", newV2Provider(t, cfg).Check(t.Context()), test.want)
			got := kmstest.Samples(t, reg, "apiserver_envelope_encryption_invalid_key_id_from_status_total")
			if n := got[test.label+" rec"]; len(got) > 1 || (n > 0) != (test.label != "") {
				t.Errorf("got counts %v, want only %q", got, test.label)
			}
		})
	}
}

// TestSeedChangesWithKey checks that a new seed is made only for a new key, and that the first one
// is reported.
func TestSeedChangesWithKey(t *testing.T) {
	plugin := kmstest.New(t)
	plugin.SetHealth("failing")
	cfg := newConfig(t, plugin)
	recovered := 0
	cfg.Recovered = func() { recovered++ }
	provider := newV2Provider(t, cfg)
	for i, test := range []struct {
		key   string
		seeds int
	}{
		{key: "key-1", seeds: 1},
		{key: "key-1", seeds: 1},
		{key: "key-2", seeds: 2},
		{key: "key-2", seeds: 2},
	} {
		plugin.UseKey(test.key)
		_ = provider.Check(t.Context()) // the plugin is unhealthy
		if n := plugin.Calls("Encrypt"); n != test.seeds || recovered != 1 {
			t.Errorf("step %d: got %d seeds and %d calls of Recovered, want %d and 1", i, n, recovered, test.seeds)
		}
	}
}

// TestExpiredSeedOnlyDecrypts checks that a seed that has expired decrypts values, but encrypts none.
func TestExpiredSeedOnlyDecrypts(t *testing.T) {
	cfg := newConfig(t, kmstest.New(t))
	sealed, err := newV2Provider(t, cfg).Seal(t.Context(), nil, []byte("value"), storedKey)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Intervals.SeedLifetime = time.Nanosecond
	provider := newV2Provider(t, cfg)
	_, err = provider.Seal(t.Context(), nil, []byte("value"), storedKey)
	checkError(t, "Seal", err, "expired at")
	if got, _, err := provider.Open(t.Context(), sealed, storedKey); string(got) != "value" || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, "value")
	}
}

// TestWithoutSeedOperationsFail checks that Seal and Open fail temporarily while the plugin has not
// encrypted a seed.
func TestWithoutSeedOperationsFail(t *testing.T) {
	p := kmstest.New(t)
	p.RejectCalls(true)
	provider := newV2Provider(t, newConfig(t, p))
	_, err := provider.Seal(t.Context(), nil, []byte("value"), storedKey)
	checkError(t, "Seal", err, "got unexpected nil transformer")
	_, _, err = provider.Open(t.Context(), nil, storedKey)
	checkError(t, "Open", err, "got unexpected nil transformer")
	if !kms.Unavailable(err) {
		t.Errorf("Open: got permanent error %v, want a temporary one", err)
	}
}

// sealedBySeed returns a value encrypted by another server with key-1.
func sealedBySeed(t testing.TB, p *kmstest.Plugin) []byte {
	t.Helper()
	sealed, err := newV2Provider(t, newConfig(t, p)).Seal(t.Context(), nil, []byte("value"), storedKey)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// TestValuesOfOtherKeysAreStale checks that values of other keys are decrypted, are stale, and are
// counted by their own key.
func TestValuesOfOtherKeysAreStale(t *testing.T) {
	plugin := kmstest.New(t)
	reg := prometheus.NewRegistry()
	other := sealedBySeed(t, plugin)
	key := bytes.Repeat([]byte("k"), 32)
	gcm, err := ciphers.NewGCM(key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := gcm.Seal(nil, []byte("value"), []byte(storedKey))
	if err != nil {
		t.Fatal(err)
	}
	keyed := joinFields(stringField(1, string(data)),
		stringField(2, "key-2"), stringField(3, string(maskedBy(key, '2'))), annotationField("local.example", "note"))
	short := joinFields(stringField(1, string(data)),
		stringField(2, "key-2"), stringField(3, "xy"), annotationField("local.example", "note"), varintField(5, 1))
	plugin.UseKey("key-2")
	same := sealedBySeed(t, plugin)
	cfg := newConfig(t, plugin)
	if cfg.Metrics, err = kms.NewMetrics(reg); err != nil {
		t.Fatal(err)
	}
	provider := newV2Provider(t, cfg)
	for name, c := range map[string]struct {
		sealed []byte
		stale  bool
	}{
		"another key":             {sealed: other, stale: true},
		"another seed":            {sealed: same, stale: false},
		"a key instead of a seed": {sealed: keyed, stale: true},
	} {
		if got, stale, err := provider.Open(t.Context(), c.sealed, storedKey); string(got) != "value" ||
			stale != c.stale ||
			err != nil {
			t.Errorf("%s: got %q, stale %t, %v, want %q, stale %t", name, got, stale, err, "value", c.stale)
		}
	}
	_, _, err = provider.Open(t.Context(), short, storedKey)
	checkError(t, "a short seed", err, "the key that KMS provider rec decrypted: invalid seed length 2 used for key generation")
	used := kmstest.Samples(t, reg, "apiserver_envelope_encryption_key_id_hash_total")
	label := func(key string) string { return kms.Hash("test") + " " + kms.Hash(key) + " rec " + kms.FromStorage }
	if used[label("key-1")] != 1 || used[label("key-2")] != 2 {
		t.Errorf("got uses %v, want 1 of key-1 and 2 of key-2", used)
	}
}

func maskedBy(key []byte, last byte) []byte {
	out := slices.Clone(key)
	for i := range out {
		out[i] ^= 0x5a ^ last
	}
	return out
}

// TestUnprovenKeysAreRequestedAgain checks that a key that has decrypted nothing is requested
// again, since the plugin may have returned a wrong one. Errors of such a key are temporary.
func TestUnprovenKeysAreRequestedAgain(t *testing.T) {
	for _, test := range []struct {
		name           string
		refreshTimeout time.Duration
		proven         bool
		calls          int
	}{
		{name: "in doubt", refreshTimeout: time.Nanosecond, calls: 2},
		{name: "not yet", refreshTimeout: time.Hour, calls: 1},
		{
			name:           "proven",
			refreshTimeout: time.Nanosecond,
			proven:         true,
			calls:          1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			plugin := kmstest.New(t)
			sealed := sealedBySeed(t, plugin)
			cfg := newConfig(t, plugin)
			cfg.Intervals.RefreshTimeout = test.refreshTimeout
			provider := newV2Provider(t, cfg)
			if test.proven {
				if _, _, err := provider.Open(t.Context(), sealed, storedKey); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				_, _, err := provider.Open(t.Context(), sealed, "/other")
				checkError(t, "Open", err, "message authentication failed")
				if inDoubt := errors.As(err, new(*kms.KeyError)); inDoubt == test.proven {
					t.Errorf("key in refreshTimeout: got %t, want %t", inDoubt, !test.proven)
				}
			}
			if n := plugin.Calls("Decrypt"); n != test.calls {
				t.Errorf("got %d Decrypt calls, want %d", n, test.calls)
			}
		})
	}
}

// TestImpatientRequestsDoNotWait checks that requests that must not wait get the recent rejection
// of a key, and do not call a plugin that does not respond.
func TestImpatientRequestsDoNotWait(t *testing.T) {
	plugin := kmstest.New(t)
	sealed := sealedBySeed(t, plugin)
	another := sealedBySeed(t, plugin)
	const callsPlugin, answersFromCache = true, false
	// open decrypts a value. want is the text of the error, or "".
	open := func(provider kms.Provider, ctx context.Context, sealed []byte, want string, wantCall bool) {
		t.Helper()
		before := plugin.Calls("Decrypt")
		_, _, err := provider.Open(ctx, sealed, storedKey)
		checkError(t, "Open", err, want)
		if called := plugin.Calls("Decrypt") > before; called != wantCall {
			t.Errorf("Open with error %q: got a call of the plugin: %t, want %t", want, called, wantCall)
		}
	}
	ctx := t.Context()
	impatient := kms.FailFast(ctx)
	const rejected = "failed to decrypt DEK, error: rpc error: code = PermissionDenied"
	t.Run("rejected", func(t *testing.T) {
		// A rejection is repeated without a call for the refresh timeout.
		for refreshTimeout, again := range map[time.Duration]bool{time.Hour: answersFromCache, time.Nanosecond: callsPlugin} {
			cfg := newConfig(t, plugin)
			cfg.Intervals.RefreshTimeout = refreshTimeout
			provider := newV2Provider(t, cfg)
			plugin.FailDecrypt("key-1", codes.PermissionDenied)
			open(provider, impatient, sealed, rejected, callsPlugin)
			open(provider, impatient, sealed, rejected, again)
			open(provider, ctx, sealed, rejected, callsPlugin)
			plugin.FailDecrypt("key-1", codes.OK)
			open(provider, ctx, sealed, "", callsPlugin)
			open(provider, impatient, sealed, "", answersFromCache)
		}
	})
	t.Run("hanging", func(t *testing.T) {
		provider := newV2Provider(t, newConfig(t, plugin))
		plugin.HangMethod("Decrypt")
		ended, end := context.WithCancel(ctx)
		end()
		_, _, err := provider.Open(ended, sealed, storedKey)
		checkError(t, "ended request", err, "failed to decrypt DEK, error: KMS provider rec: context canceled")
		_, _, err = provider.Open(impatient, sealed, storedKey)
		checkError(t, "impatient Open", err, "failed to decrypt DEK, error: KMS provider rec: the plugin takes too long")
		open(provider, impatient, another, "KMS provider rec did not respond recently", answersFromCache)
		plugin.Resume()
		open(provider, ctx, another, "", callsPlugin)
		open(provider, impatient, another, "", answersFromCache)
	})
}
