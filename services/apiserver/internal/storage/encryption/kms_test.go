package encryption_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// patience bounds waits for expected events.
const patience = 30 * time.Second

func awaitTrue(t testing.TB, description string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) { // between polls
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting for: %s", description)
		}
	}
}

// kmsRule returns a configuration that encrypts secrets with a plugin.
func kmsRule(p *kmstest.Plugin, timeout time.Duration) string {
	return rulesYAML(ruleYAML("secrets", fmt.Sprintf("kms: {apiVersion: v2, name: rec, endpoint: '%s', timeout: %s}",
		p.Endpoint(), timeout), identityTransformer))
}

// openKMS opens a configuration with a plugin that is probed often.
func openKMS(t testing.TB, p *kmstest.Plugin, timeout time.Duration, change func(*kms.Intervals)) *encryption.Live {
	t.Helper()
	b := newBuilder(t)
	b.Intervals = shortIntervals()
	if change != nil {
		change(&b.Intervals)
	}
	return openWith(t, b, kmsRule(p, timeout), false)
}

// keyOf returns the ID of the key of a stored value.
func keyOf(t testing.TB, stored []byte) string {
	t.Helper()
	for b := bytes.TrimPrefix(stored, []byte("k8s:enc:kms:v2:rec:")); len(b) > 0; {
		num, _, n := protowire.ConsumeTag(b)
		b = b[n:]
		if num == 2 {
			id, _ := protowire.ConsumeString(b)
			return id
		}
		b = b[protowire.ConsumeFieldValue(num, protowire.BytesType, b):]
	}
	t.Fatalf("got stored value %q, want one with a key ID", stored)
	return ""
}

// TestStoredKMSValuesMatchKubernetes compares stored values and plugin calls with those of Kubernetes.
func TestStoredKMSValuesMatchKubernetes(t *testing.T) {
	var cases []struct {
		Name   string
		Stored struct {
			Prefix         string
			ProtobufFields []struct {
				Field, Bytes int
				Text         string
				Varint       *uint64
			}
		}
	}
	readRecording(t, "kms-v2.json", &cases)
	plugin := kmstest.New(t)
	rawStore := newRawStore()
	store := rawStore.storeWith(openKMS(t, plugin, 5*time.Second, func(pace *kms.Intervals) {
		pace.HealthyInterval, pace.HealthyTTL = time.Hour, time.Hour
	}))
	compared := 0
	for _, c := range cases {
		if len(c.Stored.ProtobufFields) == 0 {
			continue
		}
		compared++
		size := c.Stored.ProtobufFields[0].Bytes - 60 // without info, nonce and tag
		mustCreate(t, store, secretKey, bytes.Repeat([]byte("x"), size))
		remaining, ok := bytes.CutPrefix(rawStore.values[secretKey], []byte(c.Stored.Prefix))
		if !ok {
			t.Fatalf("got stored value %.40q, want one of the plugin", rawStore.values[secretKey])
		}
		for _, f := range c.Stored.ProtobufFields {
			num, typ, n := protowire.ConsumeTag(remaining)
			remaining = remaining[n:]
			if int(num) != f.Field {
				t.Fatalf("%s: got field %d, want %d", c.Name, num, f.Field)
			}
			if f.Varint != nil {
				v, n := protowire.ConsumeVarint(remaining)
				remaining = remaining[n:]
				if v != *f.Varint {
					t.Errorf("%s: field %d: got %d, want %d", c.Name, num, v, *f.Varint)
				}
				continue
			}
			v, n := protowire.ConsumeBytes(remaining)
			remaining = remaining[n:]
			if typ != protowire.BytesType || len(v) != f.Bytes || f.Text != "" && string(v) != f.Text {
				t.Errorf("%s: field %d: got %q, want %d bytes %q", c.Name, num, v, f.Bytes, f.Text)
			}
		}
		if len(remaining) > 0 {
			t.Errorf("%s: got trailing data %q, want none", c.Name, remaining)
		}
	}
	if compared != 2 {
		t.Errorf("read %d values, want 2", compared)
	}
	if s, e, d := plugin.Calls("Status"), plugin.Calls("Encrypt"), plugin.Calls("Decrypt"); s != 1 || e != 1 || d != 0 {
		t.Errorf("got %d Status, %d Encrypt, %d Decrypt calls, want 1, 1, 0", s, e, d)
	}
}

// TestNewPluginKeyMakesValuesStale checks that another key is detected and makes earlier values stale.
func TestNewPluginKeyMakesValuesStale(t *testing.T) {
	p := kmstest.New(t)
	rawStore := newRawStore()
	store := rawStore.storeWith(openKMS(t, p, 5*time.Second, nil))
	mustCreate(t, store, secretKey, plainValue())
	p.UseKey("key-2")
	awaitTrue(t, "stale", func() bool {
		got, stale, err := getValue(t, store, secretKey)
		if got != string(plainValue()) || err != nil {
			t.Fatalf("got %.9q, %v, want the plain value", got, err)
		}
		return stale
	})
	if id := keyOf(t, rawStore.values[secretKey]); id != "key-1" {
		t.Errorf("value has key %q, want key-1", id)
	}
	mustCreate(t, store, secretKey, plainValue())
	if id := keyOf(t, rawStore.values[secretKey]); id != "key-2" {
		t.Errorf("new value has key %q, want key-2", id)
	}
	if _, stale, err := getValue(t, store, secretKey); stale || err != nil {
		t.Errorf("got stale %t, %v, want false", stale, err)
	}
}

// TestInconsistentPluginKeepsOldKey checks that a new key is not used while Status and Encrypt
// report different keys.
func TestInconsistentPluginKeepsOldKey(t *testing.T) {
	plugin := kmstest.New(t)
	rawStore := newRawStore()
	live := openKMS(t, plugin, 5*time.Second, nil)
	store := rawStore.storeWith(live)
	plugin.EncryptWith("key-1")
	plugin.UseKey("key-2")
	awaitTrue(t, "unhealthy", func() bool {
		err := live.Current().Check(t.Context(), 0)
		return err != nil && strings.Contains(err.Error(), "failed to rotate DEK")
	})
	mustCreate(t, store, secretKey, plainValue())
	if id := keyOf(t, rawStore.values[secretKey]); id != "key-1" {
		t.Errorf("value has key %q, want key-1", id)
	}
	plugin.EncryptWith("")
	awaitTrue(t, "rotated", func() bool {
		mustCreate(t, store, secretKey, plainValue())
		return keyOf(t, rawStore.values[secretKey]) == "key-2"
	})
}

// TestKnownKeysWorkWithoutPlugin checks that values of known keys can be read, and written as long as the last
// valid status permits, while the plugin is gone. Other requests fail within the timeout of a call
// and succeed after it returns.
func TestKnownKeysWorkWithoutPlugin(t *testing.T) {
	for _, test := range []struct {
		name          string
		fail, recover func(*kmstest.Plugin)
	}{
		{name: "stopped", fail: (*kmstest.Plugin).Stop, recover: (*kmstest.Plugin).Start},
		{name: "hanging", fail: (*kmstest.Plugin).Hang, recover: (*kmstest.Plugin).Resume},
	} {
		t.Run(test.name, func(t *testing.T) {
			plugin := kmstest.New(t)
			s := newRawStore()
			otherServer := s.storeWith(openKMS(t, plugin, 5*time.Second, nil)) // another server, with another seed
			mustCreate(t, otherServer, "/registry/secrets/default/seen", plainValue())
			mustCreate(t, otherServer, "/registry/secrets/default/unseen", plainValue())
			mustCreate(t, s.storeWith(openKMS(t, plugin, 5*time.Second, nil)), "/registry/secrets/default/unseen", plainValue())
			live := openKMS(t, plugin, 200*time.Millisecond, func(pace *kms.Intervals) { pace.SeedLifetime = 500 * time.Millisecond })
			store := s.storeWith(live)
			if _, _, err := getValue(t, store, "/registry/secrets/default/seen"); err != nil {
				t.Fatal(err)
			}
			mustCreate(t, store, secretKey, plainValue())
			test.fail(plugin)
			awaitTrue(t, "unhealthy", func() bool { return live.Current().Check(t.Context(), 0) != nil })
			for _, key := range []string{secretKey, "/registry/secrets/default/seen"} {
				if got, _, err := getValue(t, store, key); got != string(plainValue()) || err != nil {
					t.Errorf("%s: got %.9q, %v, want the plain value", key, got, err)
				}
			}
			for _, ctx := range []context.Context{t.Context(), kms.FailFast(t.Context())} {
				_, _, err := store.Get(ctx, "/registry/secrets/default/unseen", 0)
				var why *storage.CorruptObjectError
				if !errors.As(err, &why) || !why.Transient {
					t.Errorf("value of an unknown key: got %v, want a temporary error", err)
				}
			}
			awaitTrue(t, "writes rejected", func() bool {
				_, err := store.Create(t.Context(), secretKey, plainValue(), storage.WriteOptions{})
				var why *storage.SealError
				if err != nil && (!errors.As(err, &why) || !strings.Contains(err.Error(), " expired at ")) {
					t.Fatal(err)
				}
				return err != nil
			})
			if got, _, err := getValue(t, store, secretKey); got != string(plainValue()) || err != nil {
				t.Errorf("read while writes are rejected: got %.9q, %v, want the plain value", got, err)
			}
			test.recover(plugin)
			awaitTrue(t, "writes accepted", func() bool {
				_, err := store.Create(t.Context(), secretKey, plainValue(), storage.WriteOptions{})
				return err == nil
			})
			if _, _, err := getValue(t, store, "/registry/secrets/default/unseen"); err != nil {
				t.Errorf("value of an unknown key after the return: got %v", err)
			}
		})
	}
}

// TestOperationsFailWithoutPlugin checks that reads, writes and the health check fail while the plugin
// has never responded.
func TestOperationsFailWithoutPlugin(t *testing.T) {
	plugin := kmstest.New(t)
	s := newRawStore()
	mustCreate(t, s.storeWith(openKMS(t, plugin, 5*time.Second, nil)), secretKey, plainValue())
	plugin.Stop()
	live := openKMS(t, plugin, 100*time.Millisecond, nil)
	store := s.storeWith(live)
	const want = "got unexpected nil transformer"
	if _, _, err := getValue(t, store, secretKey); err == nil || err.Error() != want {
		t.Errorf("read: got %v, want %s", err, want)
	}
	if _, err := store.Create(t.Context(), secretKey, plainValue(), storage.WriteOptions{}); err == nil || err.Error() != want {
		t.Errorf("write: got %v, want %s", err, want)
	}
	err := live.Current().Check(t.Context(), 0)
	if err == nil || !strings.Contains(err.Error(), "rpc error: code = DeadlineExceeded") {
		t.Errorf("health: got %v, want DeadlineExceeded", err)
	}
	plugin.Start()
	awaitTrue(t, "read", func() bool { _, _, err := getValue(t, store, secretKey); return err == nil })
}

// TestUnhealthyPluginStillEncrypts checks that a plugin with an unhealthy status encrypts, while the
// health check fails with the error of Kubernetes.
func TestUnhealthyPluginStillEncrypts(t *testing.T) {
	p := kmstest.New(t)
	rawStore := newRawStore()
	live := openKMS(t, p, 5*time.Second, nil)
	p.SetHealth("broken")
	awaitTrue(t, "unhealthy", func() bool {
		err := live.Current().Check(t.Context(), 0)
		return err != nil && err.Error() == "kmsv2 Provider rec is not healthy, error: got unexpected healthz status: broken"
	})
	mustCreate(t, rawStore.storeWith(live), secretKey, plainValue())
}

// TestValuesOfLostKeyAreCorrupt checks that reading a value of a lost key fails with the plugin's code.
func TestValuesOfLostKeyAreCorrupt(t *testing.T) {
	plugin := kmstest.New(t)
	s := newRawStore()
	mustCreate(t, s.storeWith(openKMS(t, plugin, 5*time.Second, nil)), secretKey, plainValue())
	plugin.UseKey("key-2")
	plugin.RemoveKey("key-1")
	store := s.storeWith(openKMS(t, plugin, 5*time.Second, nil))
	for _, test := range []struct {
		reject    bool
		code      string
		transient bool
	}{
		{reject: false, code: "InvalidArgument"},
		{reject: true, code: "Internal", transient: true},
	} {
		plugin.RejectCalls(test.reject)
		_, _, err := getValue(t, store, secretKey)
		var why *storage.CorruptObjectError
		if !errors.As(err, &why) || why.Transient != test.transient ||
			!strings.Contains(err.Error(), "failed to decrypt DEK, error: rpc error: code = "+test.code) {
			t.Errorf("got error %v, want a CorruptObjectError with Transient %t and code %s", err, test.transient, test.code)
		}
	}
}

// TestConcurrentReadersShareCalls checks that concurrent reads with one key share plugin calls.
func TestConcurrentReadersShareCalls(t *testing.T) {
	plugin := kmstest.New(t)
	s := newRawStore()
	mustCreate(t, s.storeWith(openKMS(t, plugin, 5*time.Second, nil)), secretKey, plainValue())
	store := s.storeWith(openKMS(t, plugin, 20*time.Second, nil))
	plugin.Hang()
	done := make(chan error)
	const readers = 20
	for range readers {
		go func() {
			_, _, err := store.Get(context.Background(), secretKey, 0)
			done <- err
		}()
	}
	awaitTrue(t, "a Decrypt call", func() bool { return plugin.Calls("Decrypt") > 0 })
	plugin.Resume()
	for range readers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := plugin.Calls("Decrypt"); n == readers {
		t.Errorf("got %d Decrypt calls, want fewer than the %d readers", n, readers)
	}
}

// pluginFixture is a plugin and an etcd that holds a value encrypted by it.
type pluginFixture struct {
	plugin *kmstest.Plugin
	store  storage.Interface
}

func newPluginWithValue(t *testing.T) *pluginFixture {
	t.Helper()
	s := &pluginFixture{kmstest.New(t), etcdtest.Embedded(t)}
	mustCreate(t, encryption.NewStore(s.store, openKMS(t, s.plugin, 5*time.Second, nil), builtIn(), nil), secretKey, plainValue())
	return s
}

// TestKeyMetricsKeepHundredSeries checks that the metrics keep samples of the last 100 key IDs only: a
// plugin chooses its key IDs, and may report any number of them.
func TestKeyMetricsKeepHundredSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := encryption.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	b := newBuilder(t)
	b.Metrics = m
	b.Intervals = shortIntervals()
	b.Intervals.HealthyInterval = time.Hour
	b.Intervals.HealthyTTL = time.Nanosecond // probed only by checks
	p := kmstest.New(t)
	live := openWith(t, b, kmsRule(p, 5*time.Second), false)
	s := newRawStore()
	store := s.storeWith(live)
	for i := range 120 {
		p.UseKey(fmt.Sprintf("key-%d", i))
		if err := live.Current().Check(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, store, secretKey, plainValue())
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	metrics := 0
	for _, f := range families {
		if strings.Contains(f.GetName(), "key_id_hash") {
			metrics++
			if n := len(f.GetMetric()); n != 100 {
				t.Errorf("%s: got %d samples, want 100", f.GetName(), n)
			}
		}
	}
	if metrics != 3 {
		t.Errorf("got %d metrics, want 3", metrics)
	}
}
