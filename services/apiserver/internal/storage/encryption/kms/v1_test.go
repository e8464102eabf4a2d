package kms_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/storage/encryption/ciphers"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

func newV1Provider(t testing.TB, config kms.Config) kms.Provider {
	t.Helper()
	p, err := kms.NewV1(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// encryptedKey returns a key as kmstest encrypts it.
func encryptedKey(key []byte) []byte {
	out := bytes.Clone(key)
	for i := range out {
		out[i] ^= 0x5a ^ '1'
	}
	return out
}

// v1Value returns a stored value of version 1.
func v1Value(key, encryptedValue []byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, uint16(len(key)))
	return append(append(out, encryptedKey(key)...), encryptedValue...)
}

// checkError checks that an error contains a text. An empty text means no error.
func checkError(t testing.TB, operation string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: got %v, want %q", operation, err, want)
	}
}

// TestV1StoredFormIsDecryptedOrRejected checks which stored values of version 1 are decrypted, and the
// errors for the other ones.
func TestV1StoredFormIsDecryptedOrRejected(t *testing.T) {
	provider := newV1Provider(t, newConfig(t, kmstest.New(t)))
	key := bytes.Repeat([]byte("d"), 32)
	gcm, err1 := ciphers.NewGCM(key)
	cbc, err2 := ciphers.NewCBC(key)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	seal := func(c ciphers.Cipher, value, of string) []byte {
		sealed, err := c.Seal(nil, []byte(value), []byte(of))
		if err != nil {
			t.Fatal(err)
		}
		return v1Value(key, sealed)
	}
	const authenticationFailed = "cipher: message authentication failed"
	for _, test := range []struct {
		name   string
		sealed []byte
		value  string
		stale  bool
		want   string
	}{
		{name: "encrypted by GCM", sealed: seal(gcm, "value", storedKey), value: "value"},
		{name: "of another key", sealed: seal(gcm, "value", "/other"), want: authenticationFailed},
		{name: "an object, encrypted by CBC", sealed: seal(cbc, "k8s\x00value", ""), value: "k8s\x00value", stale: true},
		{name: "JSON, encrypted by CBC", sealed: seal(cbc, "{}", ""), value: "{}", stale: true},
		{name: "another value, encrypted by CBC", sealed: seal(cbc, "value", ""), want: authenticationFailed},
		{name: "empty", want: "length too short"},
		{name: "half a length", sealed: []byte{0}, want: "length too short"},
		{name: "no key", sealed: []byte{0, 0}, want: "a key of 0 bytes in 0"},
		{name: "no key, but a value", sealed: []byte{0, 0, 'x'}, want: "a key of 0 bytes in 1"},
		{name: "a truncated key", sealed: []byte{0, 5, 'x'}, want: "a key of 5 bytes in 1"},
		{name: "an invalid key", sealed: v1Value(key[:5], nil), want: "error while decrypting key: crypto/aes: invalid key size 5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, stale, err := provider.Open(t.Context(), test.sealed, storedKey)
			checkError(t, "Open", err, test.want)
			if string(got) != test.value || stale != test.stale {
				t.Errorf("got %q, stale %t, want %q, %t", got, stale, test.value, test.stale)
			}
		})
	}
}

// TestV1PluginFailuresAreErrors checks the errors for plugins of version 1 that misbehave.
func TestV1PluginFailuresAreErrors(t *testing.T) {
	const (
		internal = "rpc error: code = Internal"
		late     = "code = DeadlineExceeded"
		version  = "KMS provider api version v2 is not supported, only v1beta1 is supported now"
	)
	const noVersion = "failed get version from remote KMS provider: rpc error: " + late
	for _, test := range []struct {
		name              string
		breakPlugin       func(*kmstest.Plugin)
		seal, open, check string
	}{
		{name: "works", breakPlugin: func(*kmstest.Plugin) {}},
		{
			name: "rejects all calls",
			breakPlugin: func(plugin *kmstest.Plugin) {
				plugin.RejectCalls(true)
			},
			seal:  "failed to encrypt DEK, error: " + internal,
			open:  "error while decrypting key: " + internal,
			check: "failed to perform encrypt section of the healthz check for KMS Provider rec, error: " + internal,
		},
		{
			name:        "hangs in Decrypt",
			breakPlugin: func(plugin *kmstest.Plugin) { plugin.HangMethod("Decrypt") },
			open:        "error while decrypting key: rpc error: " + late,
			check:       "failed to perform decrypt section of the healthz check for KMS Provider rec, error: rpc error: " + late,
		},
		{
			name:        "decrypts to another key",
			breakPlugin: func(plugin *kmstest.Plugin) { plugin.ReturnWrongKeys(true) },
			open:        "message authentication failed",
			check:       "failed to decrypt: KMS Provider rec returned another value",
		},
		{
			name:        "encrypts to an empty value",
			breakPlugin: func(plugin *kmstest.Plugin) { plugin.SetCiphertext([]byte{}) },
			seal:        "encrypted a key to 0 bytes",
			check:       "encrypted a key to 0 bytes",
		},
		{
			name:        "encrypts to a too large value",
			breakPlugin: func(plugin *kmstest.Plugin) { plugin.SetCiphertext(make([]byte, 1025)) },
			seal:        "encrypted a key to 1025 bytes",
			check:       "encrypted a key to 1025 bytes",
		},
		{
			name:        "encrypts to a value of maximum size",
			breakPlugin: func(plugin *kmstest.Plugin) { plugin.SetCiphertext(make([]byte, 1024)) },
			check:       "returned another value",
		},
		{
			name:        "reports another version",
			breakPlugin: func(plugin *kmstest.Plugin) { plugin.SetV1Version("v2") },
			seal:        version,
			open:        version,
			check:       version,
		},
		{
			name:        "hangs in Version",
			breakPlugin: func(plugin *kmstest.Plugin) { plugin.HangMethod("Version") },
			seal:        noVersion,
			open:        noVersion,
			check:       noVersion,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			plugin := kmstest.New(t)
			sealed, err := newV1Provider(t, newConfig(t, plugin)).Seal(t.Context(), nil, []byte("value"), storedKey)
			if err != nil {
				t.Fatal(err)
			}
			newProvider := func(want string) kms.Provider { // has not called the plugin yet
				cfg := newConfig(t, plugin)
				if strings.Contains(want, late) {
					cfg.Timeout = 500 * time.Millisecond
				}
				return newV1Provider(t, cfg)
			}
			test.breakPlugin(plugin)
			_, err = newProvider(test.seal).Seal(t.Context(), nil, []byte("value"), storedKey)
			checkError(t, "Seal", err, test.seal)
			_, _, err = newProvider(test.open).Open(t.Context(), sealed, storedKey)
			checkError(t, "Open", err, test.open)
			checkError(t, "Check", newProvider(test.check).Check(t.Context()), test.check)
		})
	}
}

// TestVersionIsRequestedOnce checks that the version is cached once it is supported.
func TestVersionIsRequestedOnce(t *testing.T) {
	plugin := kmstest.New(t)
	plugin.SetV1Version("v2")
	provider := newV1Provider(t, newConfig(t, plugin))
	seal := func(want string) {
		t.Helper()
		_, err := provider.Seal(t.Context(), nil, []byte("value"), storedKey)
		checkError(t, "Seal", err, want)
	}
	seal("is not supported")
	plugin.SetV1Version("v1beta1")
	seal("")
	seal("")
	if n := plugin.Calls("Version"); n != 2 {
		t.Errorf("got %d Version calls, want 2", n)
	}
}

// TestV1KeyCacheHasConfiguredSize checks how many decrypted keys the cache holds. Two values with their
// own keys are read twice in turn: without room for both keys, each read calls the plugin.
func TestV1KeyCacheHasConfiguredSize(t *testing.T) {
	for _, test := range []struct {
		name  string
		size  int
		calls int     // of Decrypt
		fill  float64 // metric of the fill level, in percent
	}{
		{name: "none", calls: 4},
		{name: "one", size: 1, calls: 4, fill: 1},
		{name: "four", size: 4, calls: 2, fill: 0.5},
		{name: "all", size: -1, calls: 2, fill: 0.0002},
		{
			name:  "more than all",
			size:  20_000,
			calls: 2,
			fill:  0.0002,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			plugin := kmstest.New(t)
			var values [][]byte
			for range 2 {
				sealed, err := newV1Provider(t, newConfig(t, plugin)).Seal(t.Context(), nil, []byte("value"), storedKey)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, sealed)
			}
			reg := prometheus.NewRegistry()
			m, err := kms.NewMetrics(reg)
			if err != nil {
				t.Fatal(err)
			}
			cfg := newConfig(t, plugin)
			cfg.Metrics = m
			cfg.CacheSize = test.size
			provider := newV1Provider(t, cfg)
			for range 2 {
				for _, v := range values {
					if got, _, err := provider.Open(t.Context(), v, storedKey); string(got) != "value" || err != nil {
						t.Fatalf("Open: got %q, %v, want value", got, err)
					}
				}
			}
			if n := plugin.Calls("Decrypt"); n != test.calls {
				t.Errorf("got %d Decrypt calls, want %d", n, test.calls)
			}
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if got := f.GetMetric()[0].GetGauge().GetValue(); f.GetName() == "apiserver_envelope_encryption_dek_cache_fill_percent" &&
					got != test.fill {
					t.Errorf("fill level: got %v, want %v", got, test.fill)
				}
			}
		})
	}
}

// TestImpatientRequestsSkipHangingOldPlugin checks that requests that must not wait fail while the
// plugin is known to hang. Other requests call it.
func TestImpatientRequestsSkipHangingOldPlugin(t *testing.T) {
	plugin := kmstest.New(t)
	sealed, err := newV1Provider(t, newConfig(t, plugin)).Seal(t.Context(), nil, []byte("value"), storedKey)
	if err != nil {
		t.Fatal(err)
	}
	provider := newV1Provider(t, newConfig(t, plugin))
	impatient := kms.FailFast(t.Context())
	if got, _, err := provider.Open(impatient, sealed, storedKey); string(got) != "value" || err != nil {
		t.Errorf("impatient Open: got %q, %v, want value", got, err)
	}
	plugin.HangMethod("Decrypt")
	ended, end := context.WithCancel(t.Context())
	end()
	_, _, err = provider.Open(ended, sealed, storedKey)
	checkError(t, "ended request", err, "error while decrypting key: KMS provider rec: context canceled")
	_, _, err = provider.Open(impatient, sealed, storedKey)
	checkError(t, "impatient Open", err, "error while decrypting key: KMS provider rec: the plugin takes too long")
	before := plugin.Calls("Decrypt")
	_, _, err = provider.Open(impatient, sealed, storedKey)
	checkError(t, "second impatient Open", err, "KMS provider rec did not respond recently")
	if !kms.Unavailable(err) || plugin.Calls("Decrypt") != before {
		t.Errorf("hanging plugin was called again, or the error is permanent: %v", err)
	}
	plugin.Resume()
	if got, _, err := provider.Open(t.Context(), sealed, storedKey); string(got) != "value" || err != nil {
		t.Errorf("impatient Open: got %q, %v, want value", got, err)
	}
}

// TestInvalidEndpointsAreRejected checks that both versions reject endpoints that are no Unix sockets.
func TestInvalidEndpointsAreRejected(t *testing.T) {
	c := newConfig(t, kmstest.New(t))
	for endpoint, want := range map[string]string{
		"http://x":    `unsupported scheme "http" for remote KMS provider`,
		"unix:///%zz": "invalid endpoint \"unix:///%zz\" for remote KMS provider, error: parse",
	} {
		c.Endpoint = endpoint
		_, err1 := kms.NewV1(c)
		_, err2 := kms.NewV2(t.Context(), c)
		checkError(t, "version 1", err1, want)
		checkError(t, "version 2", err2, want)
	}
	for endpoint, want := range map[string]string{"unix:///a/b": "/a/b", "unix:///@a": "@a"} {
		if got, err := kms.Socket(endpoint); got != want || err != nil {
			t.Errorf("Socket(%s): got %q, %v, want %q", endpoint, got, err, want)
		}
	}
}

// TestSocketPathsMayContainURLCharacters checks that special characters of URLs are part of the
// path.
func TestSocketPathsMayContainURLCharacters(t *testing.T) {
	p := kmstest.New(t)
	cfg := newConfig(t, p)
	socket := strings.TrimPrefix(cfg.Endpoint, "unix://")
	path := filepath.Join(filepath.Dir(socket), "a?b#c%20d%zz")
	if err := os.Symlink(socket, path); err != nil {
		t.Fatal(err)
	}
	cfg.Endpoint = (&url.URL{Scheme: "unix", Path: path}).String()
	checkError(t, "version 1", newV1Provider(t, cfg).Check(t.Context()), "")
	checkError(t, "version 2", newV2Provider(t, cfg).Check(t.Context()), "")
}

// TestCachedCheckOmitsNameOfFailedCall checks that only the check that calls the plugin reports which call
// failed.
func TestCachedCheckOmitsNameOfFailedCall(t *testing.T) {
	plugin := kmstest.New(t)
	plugin.RejectCalls(true)
	cfg := newConfig(t, plugin)
	cfg.Intervals.UnhealthyTTL = time.Hour
	p := newV1Provider(t, cfg)
	for i, want := range []string{
		"failed to perform encrypt section of the healthz check for KMS Provider rec, error: rpc error: code = Internal",
		"rpc error: code = Internal",
	} {
		if err := p.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("check %d: got %v, want %s", i+1, err, want)
		}
	}
}
