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
	"binnacle/services/apiserver/internal/storage/encryption/kmstest"
)

// TestWhatAPluginSaysOfItself is held against what it may say.
func TestWhatAPluginSaysOfItself(t *testing.T) {
	const ill = "kmsv2 Provider rec is not healthy, error: "
	for _, c := range []struct {
		name string
		with func(*kmstest.Plugin)
		want string
		word string // in metrics
	}{
		{name: "well", with: func(*kmstest.Plugin) {}},
		{name: "a version of before", with: func(p *kmstest.Plugin) { p.Speak("v2beta1") }},
		{name: "another version", with: func(p *kmstest.Plugin) { p.Speak("v3") }, want: ill + "expected KMSv2 API version v2, got v3"},
		{name: "another version, and ill", with: func(p *kmstest.Plugin) { p.Speak("v3"); p.Say("no") },
			want: ill + "[got unexpected healthz status: no, expected KMSv2 API version v2, got v3]"},
		{name: "no key", with: func(p *kmstest.Plugin) { p.UseKey("") }, want: ill + `got invalid KMSv2 KeyID hash "": keyID is empty`, word: "empty"},
		{name: "a long key", with: func(p *kmstest.Plugin) { p.UseKey(strings.Repeat("k", 1025)) }, want: "keyID is 1025 bytes", word: "too_long"},
		{name: "another key than it uses", with: func(p *kmstest.Plugin) { p.EncryptWith("key-9") }, want: "they have to agree"},
		{name: "what it was to encrypt", with: func(p *kmstest.Plugin) { p.UseKey("key-Z") }, want: "answered an encryption with what it was to encrypt"}, // see mask
		{name: "nothing", with: func(p *kmstest.Plugin) { p.AnswerWith([]byte{}) }, want: "answer to an encryption: encrypted DEK source is empty"},
		{name: "no answer", with: func(p *kmstest.Plugin) { p.HangOn("Status") }, want: "failed to perform status section of the healthz check for KMS Provider rec, error: rpc error: code = DeadlineExceeded"},
		{name: "no encryption", with: func(p *kmstest.Plugin) { p.Refuse(true) }, want: ill + "failed to rotate DEK of KMS provider rec: failed to encrypt DEK, error: rpc error: code = Internal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, reg := kmstest.New(t), prometheus.NewRegistry()
			c.with(p)
			m, err := kms.NewMetrics(reg)
			if err != nil {
				t.Fatal(err)
			}
			cfg := config(t, p)
			if cfg.Metrics = m; strings.Contains(c.want, "DeadlineExceeded") {
				cfg.Timeout = 100 * time.Millisecond
			}
			says(t, "checked", second(t, cfg).Check(t.Context()), c.want)
			got := kmstest.Samples(t, reg, "apiserver_envelope_encryption_invalid_key_id_from_status_total")
			if n := got[c.word+" rec"]; len(got) > 1 || (n > 0) != (c.word != "") {
				t.Errorf("counted %v", got)
			}
		})
	}
}

// TestSeedsChangeWithKeys alone; that there is one at last is told of.
func TestSeedsChangeWithKeys(t *testing.T) {
	p := kmstest.New(t)
	p.Say("ill")
	cfg := config(t, p)
	recovered := 0
	cfg.Recovered = func() { recovered++ }
	provider := second(t, cfg)
	for i, c := range []struct {
		key   string
		seeds int
	}{{"key-1", 1}, {"key-1", 1}, {"key-2", 2}, {"key-2", 2}} {
		p.UseKey(c.key)
		_ = provider.Check(t.Context()) // it is ill
		if n := p.Calls("Encrypt"); n != c.seeds || recovered != 1 {
			t.Errorf("%d: %d seeds were encrypted, and %d times it is told that there is one", i, n, recovered)
		}
	}
}

// TestSeedsExpire, in so far as they seal no more.
func TestSeedsExpire(t *testing.T) {
	cfg := config(t, kmstest.New(t))
	sealed, err := second(t, cfg).Seal(t.Context(), nil, []byte("value"), storedAt)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Pace.Writes = time.Nanosecond
	provider := second(t, cfg)
	_, err = provider.Seal(t.Context(), nil, []byte("value"), storedAt)
	says(t, "sealed", err, "expired at")
	if got, _, err := provider.Open(t.Context(), sealed, storedAt); string(got) != "value" || err != nil {
		t.Errorf("opens to %q, %v", got, err)
	}
}

// TestWithoutASeed nothing is sealed or opened, for now.
func TestWithoutASeed(t *testing.T) {
	p := kmstest.New(t)
	p.Refuse(true)
	provider := second(t, config(t, p))
	_, err := provider.Seal(t.Context(), nil, []byte("value"), storedAt)
	says(t, "sealed", err, "got unexpected nil transformer")
	_, _, err = provider.Open(t.Context(), nil, storedAt)
	if says(t, "opened", err, "got unexpected nil transformer"); !kms.Unavailable(err) {
		t.Errorf("told as for good: %v", err)
	}
}

// sealedBySeed is a value of another server, of key-1.
func sealedBySeed(t testing.TB, p *kmstest.Plugin) []byte {
	t.Helper()
	sealed, err := second(t, config(t, p)).Seal(t.Context(), nil, []byte("value"), storedAt)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// TestValuesOfOtherKeys open, are stale, and counted by their own key.
func TestValuesOfOtherKeys(t *testing.T) {
	p, reg := kmstest.New(t), prometheus.NewRegistry()
	other := sealedBySeed(t, p)
	key := bytes.Repeat([]byte("k"), 32)
	gcm, err := ciphers.NewGCM(key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := gcm.Seal(nil, []byte("value"), []byte(storedAt))
	if err != nil {
		t.Fatal(err)
	}
	keyed := join(text(1, string(data)), text(2, "key-2"), text(3, string(maskedBy(key, '2'))), annotation("local.example", "note"))
	short := join(text(1, string(data)), text(2, "key-2"), text(3, "xy"), annotation("local.example", "note"), number(5, 1))
	p.UseKey("key-2")
	same := sealedBySeed(t, p)
	cfg := config(t, p)
	if cfg.Metrics, err = kms.NewMetrics(reg); err != nil {
		t.Fatal(err)
	}
	provider := second(t, cfg)
	for name, c := range map[string]struct {
		sealed []byte
		stale  bool
	}{"another key": {other, true}, "another seed": {same, false}, "a key instead of a seed": {keyed, true}} {
		if got, stale, err := provider.Open(t.Context(), c.sealed, storedAt); string(got) != "value" || stale != c.stale || err != nil {
			t.Errorf("%s: opens to %q, stale %t, %v", name, got, stale, err)
		}
	}
	_, _, err = provider.Open(t.Context(), short, storedAt)
	says(t, "a short seed", err, "the key that KMS provider rec decrypted: invalid seed length 2 used for key generation")
	used := kmstest.Samples(t, reg, "apiserver_envelope_encryption_key_id_hash_total")
	label := func(key string) string { return kms.Hash("test") + " " + kms.Hash(key) + " rec " + kms.FromStorage }
	if used[label("key-1")] != 1 || used[label("key-2")] != 2 {
		t.Errorf("used %v", used)
	}
}

func maskedBy(key []byte, last byte) []byte {
	out := slices.Clone(key)
	for i := range out {
		out[i] ^= 0x5a ^ last
	}
	return out
}

// TestKeysThatHaveOpenedNothing are in doubt: the plugin is asked for them again, and what
// they do not open may open later. One that has opened something is not.
func TestKeysThatHaveOpenedNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		doubt  time.Duration
		proven bool
		asked  int
	}{{"in doubt", time.Nanosecond, false, 2}, {"not yet", time.Hour, false, 1}, {"proven", time.Nanosecond, true, 1}} {
		t.Run(c.name, func(t *testing.T) {
			p := kmstest.New(t)
			sealed := sealedBySeed(t, p)
			cfg := config(t, p)
			cfg.Pace.Doubt = c.doubt
			provider := second(t, cfg)
			if c.proven {
				if _, _, err := provider.Open(t.Context(), sealed, storedAt); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				_, _, err := provider.Open(t.Context(), sealed, "/other")
				says(t, "opened", err, "message authentication failed")
				if doubted := errors.As(err, new(*kms.KeyError)); doubted == c.proven {
					t.Errorf("the key is in doubt: %t", doubted)
				}
			}
			if n := p.Calls("Decrypt"); n != c.asked {
				t.Errorf("the plugin was asked %d times", n)
			}
		})
	}
}

// TestWhoMustNotWait is refused what was refused of late, and asks no plugin that does not answer.
func TestWhoMustNotWait(t *testing.T) {
	p := kmstest.New(t)
	sealed, another := sealedBySeed(t, p), sealedBySeed(t, p)
	open := func(provider kms.Provider, ctx context.Context, sealed []byte, want string, asked bool) {
		t.Helper()
		before := p.Calls("Decrypt")
		_, _, err := provider.Open(ctx, sealed, storedAt)
		says(t, "opened", err, want)
		if (p.Calls("Decrypt") > before) != asked {
			t.Errorf("the plugin was asked: %t", !asked)
		}
	}
	ctx := t.Context()
	impatient := kms.Impatient(ctx)
	const refused = "failed to decrypt DEK, error: rpc error: code = PermissionDenied"
	t.Run("refused", func(t *testing.T) {
		for doubt, again := range map[time.Duration]bool{time.Hour: false, time.Nanosecond: true} {
			cfg := config(t, p)
			cfg.Pace.Doubt = doubt
			provider := second(t, cfg)
			p.Fail("key-1", codes.PermissionDenied)
			open(provider, impatient, sealed, refused, true)
			open(provider, impatient, sealed, refused, again)
			open(provider, ctx, sealed, refused, true)
			p.Fail("key-1", codes.OK)
			open(provider, ctx, sealed, "", true)
			open(provider, impatient, sealed, "", false)
		}
	})
	t.Run("hanging", func(t *testing.T) {
		provider := second(t, config(t, p))
		p.HangOn("Decrypt")
		ended, end := context.WithCancel(ctx)
		end()
		_, _, err := provider.Open(ended, sealed, storedAt)
		says(t, "gone", err, "failed to decrypt DEK, error: KMS provider rec: context canceled")
		_, _, err = provider.Open(impatient, sealed, storedAt)
		says(t, "in haste", err, "failed to decrypt DEK, error: KMS provider rec: the plugin takes too long")
		open(provider, impatient, another, "KMS provider rec did not answer of late", false)
		p.Answer()
		open(provider, ctx, another, "", true)
		open(provider, impatient, another, "", false)
	})
}
