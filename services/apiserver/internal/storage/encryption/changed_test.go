package encryption_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

// absentPlugin returns a plugin configuration whose endpoint does not exist.
func absentPlugin(name string) string {
	return "kms: {apiVersion: v2, name: " + name + ", endpoint: 'unix:///nowhere/" + name + "', timeout: 10ms}"
}

// TestUnusableConfigurationIsCountedAndLoggedOnce checks that an unusable configuration is counted and logged
// once while it does not change, and that it is retried only if its plugins are unhealthy.
func TestUnusableConfigurationIsCountedAndLoggedOnce(t *testing.T) {
	reg, b := newMetricsBuilder(t)
	log := &logBuffer{}
	b.HealthTimeout = time.Millisecond
	b.Logger = slog.New(slog.NewTextHandler(log, nil))
	live := openWith(t, b, rulesYAML(ruleYAML("secrets", identityTransformer)), true)
	first := live.Current()
	ended, end := context.WithCancel(t.Context())
	end()
	const kmsV1 = "kms: {name: a, endpoint: 'unix:///nowhere/a'}"
	failures := 0.0

	// 1. Each unusable configuration is logged and counted, unless it has the error of the previous
	// one. done means that the reload need not be retried.
	for _, test := range []struct {
		name    string
		content string
		err     error
		done    bool
		counted bool
		log     string
	}{
		{
			name:    "missing",
			err:     errors.New("file missing"),
			done:    true,
			counted: true,
			log:     "error reading encryption provider configuration file",
		},
		{name: "empty", done: true, counted: true, log: "is empty"},
		{
			name:    "bad",
			content: rulesYAML(ruleYAML("secrets")),
			done:    true,
			counted: true,
			log:     "provider does not contain any of the expected providers",
		},
		{
			name:    "KMS v1 without its feature gate",
			content: rulesYAML(ruleYAML("secrets", kmsV1)),
			done:    true,
			counted: true,
			log:     "KMSv1 is deprecated",
		},
		{
			name:    "unhealthy",
			content: rulesYAML(ruleYAML("secrets", absentPlugin("a"))),
			counted: true,
			log:     "the new configuration is not applied",
		},
		{name: "still unhealthy", content: rulesYAML(ruleYAML("secrets", absentPlugin("a")))},
		{
			name:    "another unhealthy plugin",
			content: rulesYAML(ruleYAML("secrets", absentPlugin("b"))),
			counted: true,
			log:     "the new configuration is not applied",
		},
		{name: "missing again", err: errors.New("file missing"), done: true, counted: true, log: "file missing"},
		{
			name:    "unhealthy again",
			content: rulesYAML(ruleYAML("secrets", absentPlugin("b"))),
			counted: true,
			log:     "the new configuration is not applied",
		},
	} {
		logged := log.count("encryption configuration is invalid")
		if done := live.Changed(t.Context(), []byte(test.content), test.err); done != test.done {
			t.Errorf("%s: got done %t, want %t", test.name, done, test.done)
		}
		if test.counted {
			failures++
			logged++
			if log.count(test.log) == 0 {
				t.Errorf("%s: got a log without %q, want the line", test.name, test.log)
			}
		}
		if got := log.count("encryption configuration is invalid"); got != logged {
			t.Errorf("%s: logged %d times, want %d", test.name, got, logged)
		}
		if got := reloadCounts(t, reg)["failure"]; got != failures {
			t.Errorf("%s: got %v failures, want %v", test.name, got, failures)
		}
	}

	// 2. The first configuration stays. A reload that is canceled because the server stops is not a
	// failure.
	if !live.Changed(ended, []byte(rulesYAML(ruleYAML("secrets", absentPlugin("c")))), nil) ||
		reloadCounts(t, reg)["failure"] != failures {
		t.Errorf("at the stop: got %v failures, want %v", reloadCounts(t, reg), failures)
	}
	if live.Current() != first {
		t.Error("an unusable configuration replaced the current one, want it kept")
	}
	if got := reloadCounts(t, reg)["success"]; got != 0 {
		t.Errorf("unusable configuration: got %v successful reloads, want none", got)
	}
	if got := log.count("encryption configuration applied"); got > 0 {
		t.Errorf("unusable configuration: got %d log lines of its application, want none", got)
	}

	// 3. A usable configuration is applied.
	if !live.Changed(t.Context(), []byte(rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32)))), nil) ||
		live.Current() == first {
		t.Error("usable configuration: got the first one kept, want it applied")
	}
	if got := reloadCounts(t, reg); got["success"] != 1 || got["failure"] != failures {
		t.Errorf("got reloads %v, want 1 success and %v failures", got, failures)
	}
	if got := log.count("encryption configuration applied"); got != 1 {
		t.Errorf("got %d log lines of an application, want 1", got)
	}
}

// TestReplacedConfigurationIsClosedLater checks that a replaced configuration stays usable for a
// while for requests that started with it.
func TestReplacedConfigurationIsClosedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		b := newBuilder(t)
		b.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		b.Intervals = kms.Intervals{
			HealthyInterval:   time.Second,
			UnhealthyInterval: time.Second,
			HealthyTTL:        time.Millisecond,
			UnhealthyTTL:      time.Millisecond,
		}
		live := openWith(t, b, rulesYAML(ruleYAML("secrets", absentPlugin("a"))), true)
		probes := func() int { return log.count("KMS plugin is unreachable") }
		if !live.Changed(t.Context(), []byte(rulesYAML(ruleYAML("secrets", identityTransformer))), nil) {
			t.Fatal("valid configuration: got it rejected, want it applied")
		}
		before := probes()
		time.Sleep(9 * time.Second)
		if probes() == before {
			t.Error("replaced configuration after 9 s: got no probe of its plugin, want some")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		before = probes()
		time.Sleep(time.Minute)
		if n := probes(); n != before {
			t.Errorf("got %d probes long after the replacement, want 0", n-before)
		}
	})
}

// TestClosedLiveAppliesNothing checks that no configuration is opened after Close, since nothing
// would close it.
func TestClosedLiveAppliesNothing(t *testing.T) {
	p := kmstest.New(t)
	live := openWith(t, newBuilder(t), rulesYAML(ruleYAML("secrets", identityTransformer)), true)
	first := live.Current()
	live.Close()
	if !live.Changed(t.Context(), []byte(kmsRule(p, 5*time.Second)), nil) || live.Current() != first {
		t.Error("after Close: got a configuration applied, want none")
	}
	encryption.NewIdentity().Close() // must not fail
}
