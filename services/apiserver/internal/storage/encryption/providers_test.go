package encryption_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/nacl/secretbox"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

// Keys of the recordings.
const (
	key32   = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	other32 = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
)

const secretKey = "/registry/secrets/default/s"

// plainValue returns a value of the size of the recorded secret.
func plainValue() []byte { return append([]byte("k8s\x00"), bytes.Repeat([]byte("x"), 218)...) }

func rulesYAML(lines ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(lines, "")
}

// ruleYAML returns a rule with providers for resources.
func ruleYAML(resources string, providers ...string) string {
	return "- resources: [" + resources + "]\n  providers:\n  - " + strings.Join(providers, "\n  - ") + "\n"
}

func keysYAML(provider, secret string) string {
	return provider + ": {keys: [{name: k1, secret: " + secret + "}]}"
}

// identityTransformer stores values unencrypted.
const identityTransformer = "identity: {}"

// builtIn returns some built-in resources.
func builtIn() *encryption.Resources {
	return encryption.NewResources("/registry/", map[string]schema.GroupResource{
		"/registry/secrets/":            {Resource: "secrets"},
		"/registry/configmaps/":         {Resource: "configmaps"},
		"/registry/events/":             {Resource: "events"},
		"/registry/deployments/":        {Group: "apps", Resource: "deployments"},
		"/registry/namespaces/":         {Resource: "namespaces"},
		"/registry/services/specs/":     {Resource: "services"},
		"/registry/services/endpoints/": {Resource: "endpoints"},
		"/registry/apiextensions.k8s.io/customresourcedefinitions/": {
			Group:    "apiextensions.k8s.io",
			Resource: "customresourcedefinitions",
		},
		"/registry/apiregistration.k8s.io/apiservices/": {Group: "apiregistration.k8s.io", Resource: "apiservices"},
		"/registry/leases/":                             {Group: "coordination.k8s.io", Resource: "leases"},
	})
}

// openConfig opens a configuration.
func openConfig(t testing.TB, configuration string) *encryption.Live {
	t.Helper()
	b := newBuilder(t)
	b.KMSv1 = true
	return openWith(t, b, configuration, false)
}

func openWith(t testing.TB, b *encryption.Builder, configuration string, reload bool) *encryption.Live {
	t.Helper()
	file := filepath.Join(t.TempDir(), "enc.yaml")
	writeConfig(t, file, configuration)
	live, err := encryption.Open(t.Context(), file, reload, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(live.Close)
	return live
}

func writeConfig(t testing.TB, file, content string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file+".next", []byte(content), 0o600), os.Rename(file+".next", file)); err != nil {
		t.Fatal(err)
	}
}

// rawStore is a store with one value per key, as stored.
type rawStore struct {
	storage.Interface
	values map[string][]byte
}

func (s *rawStore) Get(_ context.Context, key string, _ int64) (storage.KeyValue, int64, error) {
	v, ok := s.values[key]
	if !ok {
		return storage.KeyValue{}, 1, storage.ErrNotFound
	}
	return storage.KeyValue{Key: key, Value: v, ModRevision: 1, CreateRevision: 1}, 1, nil
}

func (s *rawStore) Create(_ context.Context, key string, value []byte, _ storage.WriteOptions) (int64, error) {
	s.values[key] = value
	return 1, nil
}

// storeWith returns a Store on the raw store with a configuration.
func (s *rawStore) storeWith(live *encryption.Live) *encryption.Store {
	return encryption.NewStore(s, live, builtIn(), nil)
}

func newRawStore() *rawStore { return &rawStore{values: map[string][]byte{}} }

func mustCreate(t testing.TB, s *encryption.Store, key string, value []byte) {
	t.Helper()
	if _, err := s.Create(t.Context(), key, value, storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// getValue returns a value, whether it is stale, and the reason why it is corrupt.
func getValue(t testing.TB, s *encryption.Store, key string) (string, bool, error) {
	t.Helper()
	kv, _, err := s.Get(t.Context(), key, 0)
	if err != nil && kv.Value != nil {
		t.Errorf("got value %.20q with error %v, want no value", kv.Value, err)
	}
	return string(kv.Value), kv.Stale(), err
}

// TestStoredValuesMatchKubernetes compares stored values with those of Kubernetes: prefix, size and layout. Each
// configuration reads the values of all earlier ones.
func TestStoredValuesMatchKubernetes(t *testing.T) {
	var cases []struct {
		Name, Configuration string
		Stored              struct {
			Length int
			Prefix *string
		}
	}
	readRecording(t, "stored-values.json", &cases)
	rawStore := newRawStore()
	compared := 0
	for i, test := range cases {
		if test.Stored.Length == 0 {
			continue
		}
		compared++
		live := openConfig(t, test.Configuration)
		key := fmt.Sprintf("/registry/secrets/default/s%d", i)
		mustCreate(t, rawStore.storeWith(live), key, plainValue())
		stored, prefix := rawStore.values[key], ""
		if test.Stored.Prefix != nil {
			prefix = *test.Stored.Prefix
		}
		if len(stored) != test.Stored.Length || !bytes.HasPrefix(stored, []byte(prefix)) {
			t.Errorf("%s: got %d bytes beginning with %.40q, want %d beginning with %q as in Kubernetes", test.Name,
				len(stored), stored, test.Stored.Length, prefix)
		}
		for before := range i + 1 {
			key := fmt.Sprintf("/registry/secrets/default/s%d", before)
			if _, ok := rawStore.values[key]; !ok {
				continue
			}
			value, stale, err := getValue(t, rawStore.storeWith(live), key)
			if value != string(plainValue()) || err != nil || stale != (before != i) {
				t.Errorf("%s: value of configuration %d: got %.20q, stale %t, %v, want the plain value, stale %t",
					test.Name, before, value, stale, err, before != i)
			}
		}
	}
	if compared != 5 {
		t.Errorf("read %d configurations, want 5", compared)
	}
}

// TestStoredLayoutsMatchStandardCiphers decrypts stored values independently, and reads values that were encrypted
// independently.
func TestStoredLayoutsMatchStandardCiphers(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		provider string
		decrypt  func([]byte) []byte
		encrypt  func([]byte) []byte
	}{
		{
			provider: "aescbc",
			decrypt: func(b []byte) []byte {
				out := make([]byte, len(b)-16)
				cipher.NewCBCDecrypter(block, b[:16]).CryptBlocks(out, b[16:])
				return out[:len(out)-int(out[len(out)-1])]
			},
			encrypt: func(b []byte) []byte {
				pad := 16 - len(b)%16
				b = append(bytes.Clone(b), bytes.Repeat([]byte{byte(pad)}, pad)...)
				out := make([]byte, len(b))
				cipher.NewCBCEncrypter(block, key[:16]).CryptBlocks(out, b)
				return append(bytes.Clone(key[:16]), out...)
			},
		},
		{
			provider: "aesgcm",
			decrypt: func(b []byte) []byte {
				out, _ := gcm.Open(nil, b[:12], b[12:], []byte(secretKey))
				return out
			},
			encrypt: func(b []byte) []byte {
				return gcm.Seal(bytes.Clone(key[:12]), key[:12], b, []byte(secretKey))
			},
		},
		{
			provider: "secretbox",
			decrypt: func(b []byte) []byte {
				out, _ := secretbox.Open(nil, b[24:], (*[24]byte)(b), (*[32]byte)(key))
				return out
			},
			encrypt: func(b []byte) []byte {
				return secretbox.Seal(bytes.Clone(key[:24]), b, (*[24]byte)(key), (*[32]byte)(key))
			},
		},
	} {
		t.Run(test.provider, func(t *testing.T) {
			s := newRawStore()
			store := s.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML(test.provider, key32)))))
			mustCreate(t, store, secretKey, plainValue())
			prefix := []byte("k8s:enc:" + test.provider + ":v1:k1:")
			if got := test.decrypt(s.values[secretKey][len(prefix):]); !bytes.Equal(got, plainValue()) {
				t.Errorf("stored value decrypted with the key: got %q, want %q", got, plainValue())
			}
			s.values[secretKey] = append(bytes.Clone(prefix), test.encrypt(plainValue())...)
			if got, stale, err := getValue(t, store, secretKey); got != string(plainValue()) || stale || err != nil {
				t.Errorf("got %q, stale %t, %v, want the plain value, not stale", got, stale, err)
			}
		})
	}
}

// TestMostSpecificRuleEncrypts checks that the most specific of several rules encrypts a resource, as
// in Kubernetes.
func TestMostSpecificRuleEncrypts(t *testing.T) {
	var recorded []struct {
		Name, Configuration string
		Stored              json.RawMessage
	}
	readRecording(t, "stored-values.json", &recorded)
	rules := recorded[len(recorded)-1] // the configuration with several rules
	var storedPrefixes map[string]any  // by key; nil means unencrypted
	if err := json.Unmarshal(rules.Stored, &storedPrefixes); err != nil {
		t.Fatal(err)
	}
	rawStore := newRawStore()
	store := rawStore.storeWith(openConfig(t, rules.Configuration))
	for key, want := range storedPrefixes {
		if want == "absent" {
			continue
		}
		mustCreate(t, store, key, plainValue())
		prefix, _ := want.(string)
		if prefix == "" {
			if !bytes.Equal(rawStore.values[key], plainValue()) {
				t.Errorf("%s: got stored value %.40q, want it unencrypted", key, rawStore.values[key])
			}
		} else if !bytes.HasPrefix(rawStore.values[key], []byte(prefix)) {
			t.Errorf("%s: got stored value %.40q, want prefix %s", key, rawStore.values[key], prefix)
		}
		if got, stale, err := getValue(t, store, key); got != string(plainValue()) || stale || err != nil {
			t.Errorf("%s: got %.20q, stale %t, %v, want the plain value, not stale", key, got, stale, err)
		}
	}
}

// provider is a provider for the common tests.
type provider struct {
	name                  string
	configuration         string // its configuration
	otherKeyConfiguration string // its configuration with another key
	bindsKey              bool   // authenticates the storage key of the value
	authenticates         bool   // authenticates the value
	plugin                *kmstest.Plugin
}

func allProviders(t testing.TB) []provider {
	plugin := kmstest.New(t)
	kmsOf := func(version, name string) string {
		return fmt.Sprintf("kms: {apiVersion: %s, name: %s, endpoint: '%s', timeout: 5s}", version, name, plugin.Endpoint())
	}
	return []provider{
		{name: "identity", configuration: identityTransformer, otherKeyConfiguration: identityTransformer},
		{name: "aescbc", configuration: keysYAML("aescbc", key32), otherKeyConfiguration: keysYAML("aescbc", other32)},
		{name: "aesgcm", configuration: keysYAML("aesgcm", key32), otherKeyConfiguration: keysYAML("aesgcm", other32), bindsKey: true, authenticates: true},
		{name: "secretbox", configuration: keysYAML("secretbox", key32), otherKeyConfiguration: keysYAML("secretbox", other32), authenticates: true},
		{name: "kms v2", configuration: kmsOf("v2", "p"), otherKeyConfiguration: kmsOf("v2", "other"), bindsKey: true, authenticates: true, plugin: plugin},
		{name: "kms v1", configuration: kmsOf("v1", "p"), otherKeyConfiguration: kmsOf("v1", "other"), bindsKey: true, authenticates: true, plugin: plugin},
	}
}

// TestAllProvidersEncryptAndDecrypt checks the behaviour that all providers share: round trips of
// values of all sizes, and the outcome for moved, stale and corrupt values.
func TestAllProvidersEncryptAndDecrypt(t *testing.T) {
	for _, provider := range allProviders(t) {
		t.Run(provider.name, func(t *testing.T) {
			rawStore := newRawStore()
			live := openConfig(t, rulesYAML(ruleYAML("secrets", provider.configuration)))
			store := rawStore.storeWith(live)
			for _, size := range []int{0, 1, 15, 16, 17, 4095, 1 << 20} {
				value := append([]byte("k8s\x00"), bytes.Repeat([]byte{'v'}, size)...)
				mustCreate(t, store, secretKey, value)
				if provider.configuration != identityTransformer && size > 15 && bytes.Contains(rawStore.values[secretKey], value[4:20]) {
					t.Error("stored value: got it plain, want it encrypted")
				}
				if got, stale, err := getValue(t, store, secretKey); got != string(value) || stale || err != nil {
					t.Errorf("value of %d bytes: got %d bytes, stale %t, %v, want the same value, not stale", len(value), len(got), stale, err)
				}
			}
			mustCreate(t, store, secretKey, plainValue())
			sealed := rawStore.values[secretKey]
			mustCreate(t, store, secretKey, plainValue())
			if provider.configuration != identityTransformer && bytes.Equal(sealed, rawStore.values[secretKey]) {
				t.Error("two encryptions of a value: got equal ones, want different ones")
			}
			t.Run("value moved to another key", func(t *testing.T) {
				rawStore.values["/registry/secrets/default/other"] = sealed
				if _, _, err := getValue(t, store, "/registry/secrets/default/other"); (err != nil) != provider.bindsKey {
					t.Errorf("value copied from another key: got %v, want error %t", err, provider.bindsKey)
				}
			})
			if provider.configuration == identityTransformer {
				return
			}
			t.Run("value of another encryption key", func(t *testing.T) {
				got, _, err := getValue(t, rawStore.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", provider.otherKeyConfiguration, identityTransformer)))),
					secretKey)
				if err == nil && got == string(plainValue()) {
					t.Error("another key: got the value decrypted, want an error")
				}
			})
			t.Run("value of a later provider is stale", func(t *testing.T) {
				first := rawStore.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", provider.configuration, identityTransformer))))
				rawStore.values["/registry/secrets/default/plain"] = plainValue()
				got, stale, err := getValue(t, first, "/registry/secrets/default/plain")
				if got != string(plainValue()) || !stale || err != nil {
					t.Errorf("plain value: got %.9q, stale %t, %v, want it stale", got, stale, err)
				}
				second := rawStore.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", identityTransformer, provider.configuration))))
				if got, stale, err := getValue(t, second, secretKey); got != string(plainValue()) || !stale || err != nil {
					t.Errorf("encrypted value: got %.9q, stale %t, %v, want the plain value, stale", got, stale, err)
				}
			})
			t.Run("corrupt value", func(t *testing.T) {
				draw := rand.New(rand.NewPCG(1, 2))
				for range 300 {
					bad := bytes.Clone(sealed)
					if draw.IntN(2) == 0 {
						bad = bad[:draw.IntN(len(bad))]
					} else {
						bad[draw.IntN(len(bad))] ^= 1 << draw.IntN(8)
					}
					rawStore.values[secretKey] = bad
					got, _, err := getValue(t, store, secretKey)
					if provider.authenticates && err == nil {
						t.Fatalf("corrupt value: got %.40q, want an error", got)
					}
					var why *storage.CorruptObjectError
					if err != nil && (!errors.As(err, &why) || why.Key != secretKey || why.Revision != 1) {
						t.Fatalf("got %v, want CorruptObjectError", err)
					}
				}
			})
		})
	}
}

// TestPlainValueWithPrefixIsRejected checks that clients cannot have a value decrypted that was
// stored unencrypted.
func TestPlainValueWithPrefixIsRejected(t *testing.T) {
	rawStore := newRawStore()
	encrypting := rawStore.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("aescbc", key32)))))
	mustCreate(t, encrypting, secretKey, plainValue())
	sealedValue := rawStore.values[secretKey]
	for name, store := range map[string]*encryption.Store{
		"without a configuration": rawStore.storeWith(encryption.NewIdentity()),
		"not covered":             rawStore.storeWith(openConfig(t, rulesYAML(ruleYAML("configmaps", keysYAML("aescbc", key32))))),
		"identity": rawStore.storeWith(openConfig(t,
			rulesYAML(ruleYAML("secrets", identityTransformer, keysYAML("aescbc", key32))))),
	} {
		if _, err := store.Create(t.Context(), secretKey, sealedValue, storage.WriteOptions{}); err == nil {
			t.Errorf("%s: got a value with an encryption prefix stored unencrypted, want an error", name)
		}
	}
	if _, _, err := getValue(t, rawStore.storeWith(encryption.NewIdentity()), secretKey); err == nil ||
		err.Error() != "identity transformer tried to read encrypted data" {
		t.Errorf("read without a configuration: got %v, want an error of the identity transformer", err)
	}
	// Inside an encrypted value the prefix has no meaning.
	mustCreate(t, encrypting, secretKey, sealedValue)
	if got, _, err := getValue(t, encrypting, secretKey); got != string(sealedValue) || err != nil {
		t.Errorf("got %.40q, %v, want %.40q", got, err, sealedValue)
	}
}

// TestRightKeyOfSameNameDecrypts checks that the right key is found if a rotation uses the same name twice.
func TestRightKeyOfSameNameDecrypts(t *testing.T) {
	s := newRawStore()
	mustCreate(t, s.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32))))), secretKey, plainValue())
	both := s.storeWith(openConfig(t,
		rulesYAML(ruleYAML("secrets", "aesgcm: {keys: [{name: k1, secret: "+other32+"}, {name: k1, secret: "+key32+"}]}"))))
	if got, stale, err := getValue(t, both, secretKey); got != string(plainValue()) || !stale || err != nil {
		t.Errorf("in one rule: got %.9q, stale %t, %v, want the plain value, stale", got, stale, err)
	}
	apart := s.storeWith(openConfig(t,
		rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", other32)), ruleYAML("secrets", keysYAML("aesgcm", key32)))))
	if got, stale, err := getValue(t, apart, secretKey); got != string(plainValue()) || !stale || err != nil {
		t.Errorf("in two rules: got %.9q, stale %t, %v, want the plain value, stale", got, stale, err)
	}
}

// FuzzOpen checks that no encrypted value is returned without decryption.
func FuzzOpen(f *testing.F) {
	plugin := kmstest.New(f)
	providers := []string{keysYAML("aescbc", key32), keysYAML("aesgcm", key32), keysYAML("secretbox", key32),
		"kms: {apiVersion: v2, name: p, endpoint: '" + plugin.Endpoint() + "'}",
		"kms: {name: old, endpoint: '" + plugin.Endpoint() + "'}", identityTransformer}
	s := newRawStore()
	store := s.storeWith(openConfig(f, rulesYAML(ruleYAML("secrets", providers...))))
	for _, p := range providers {
		mustCreate(f, s.storeWith(openConfig(f, rulesYAML(ruleYAML("secrets", p)))), secretKey, plainValue())
		f.Add(s.values[secretKey])
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		s.values[secretKey] = stored
		value, _, err := getValue(t, store, secretKey)
		if err == nil && strings.HasPrefix(value, "k8s:enc:") && bytes.Equal([]byte(value), stored) {
			t.Errorf("stored %q: got it returned undecrypted, want an error", stored)
		}
	})
}

// shortIntervals returns short intervals for probes.
func shortIntervals() kms.Intervals {
	return kms.Intervals{
		HealthyInterval:   20 * time.Millisecond,
		UnhealthyInterval: 10 * time.Millisecond,
		HealthyTTL:        time.Millisecond,
		UnhealthyTTL:      time.Millisecond,
		RefreshTimeout:    time.Millisecond,
	}
}
