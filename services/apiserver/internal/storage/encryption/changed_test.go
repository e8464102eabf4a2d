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
	"binnacle/services/apiserver/internal/storage/encryption/kmstest"
)

// absent is a plugin that nobody has started.
func absent(name string) string {
	return "kms: {apiVersion: v2, name: " + name + ", endpoint: 'unix:///nowhere/" + name + "', timeout: 10ms}"
}

// TestChangesOfTheFile: what cannot be used is counted and told of, once as long as it stays
// the same; only one whose plugins are not well is wanted again.
func TestChangesOfTheFile(t *testing.T) {
	reg, b := counted(t)
	log := &lines{}
	b.WellWithin, b.Logger = time.Millisecond, slog.New(slog.NewTextHandler(log, nil))
	live := openWith(t, b, rules(rule("secrets", identity)), true)
	first := live.Current()
	ended, end := context.WithCancel(t.Context())
	end()
	const old = "kms: {name: a, endpoint: 'unix:///nowhere/a'}" // of version 1
	failures := 0.0
	for _, c := range []struct {
		name    string
		content string
		err     error
		done    bool
		counts  bool
		says    string
	}{
		{name: "gone", err: errors.New("away"), done: true, counts: true, says: "error reading encryption provider configuration file"},
		{name: "empty", done: true, counts: true, says: "is empty"},
		{name: "bad", content: rules(rule("secrets")), done: true, counts: true, says: "provider does not contain any of the expected providers"},
		{name: "bad in another way", content: rules(rule("secrets", old)), done: true, counts: true, says: "KMSv1 is deprecated"},
		{name: "not well", content: rules(rule("secrets", absent("a"))), counts: true, says: "the new configuration is not taken"},
		{name: "not well still", content: rules(rule("secrets", absent("a")))},
		{name: "another, not well", content: rules(rule("secrets", absent("b"))), counts: true, says: "the new configuration is not taken"},
		{name: "gone again", err: errors.New("away"), done: true, counts: true, says: "away"},
		{name: "not well, but there again", content: rules(rule("secrets", absent("b"))), counts: true, says: "the new configuration is not taken"},
	} {
		told := log.count("cannot be used")
		if done := live.Changed(t.Context(), []byte(c.content), c.err); done != c.done {
			t.Errorf("%s: done %t", c.name, done)
		}
		if c.counts {
			failures++
			told++
			if log.count(c.says) == 0 {
				t.Errorf("%s: %q is not told", c.name, c.says)
			}
		}
		if got := log.count("cannot be used"); got != told {
			t.Errorf("%s: told of %d times, want %d", c.name, got, told)
		}
		if got := reloads(t, reg)["failure"]; got != failures {
			t.Errorf("%s: %v failures are counted, want %v", c.name, got, failures)
		}
	}
	// The end of the server is no failure.
	if !live.Changed(ended, []byte(rules(rule("secrets", absent("c")))), nil) || reloads(t, reg)["failure"] != failures {
		t.Errorf("at the end %v failures are counted, want %v", reloads(t, reg), failures)
	}
	if live.Current() != first || reloads(t, reg)["success"] != 0 || log.count("was taken up") > 0 {
		t.Error("something was taken up")
	}
	if !live.Changed(t.Context(), []byte(rules(rule("secrets", keys("aesgcm", key32)))), nil) || live.Current() == first {
		t.Error("what is well is not taken up")
	}
	if got := reloads(t, reg); got["success"] != 1 || got["failure"] != failures || log.count("was taken up") != 1 {
		t.Errorf("counted %v", got)
	}
}

// TestReplacedOnesLiveOnForAWhile, for who began with them.
func TestReplacedOnesLiveOnForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := &lines{}, builder(t)
		b.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		b.Pace = kms.Pace{Well: time.Second, Ill: time.Second, WellKept: time.Millisecond, IllKept: time.Millisecond}
		live := openWith(t, b, rules(rule("secrets", absent("a"))), true)
		asked := func() int { return log.count("a KMS plugin cannot be reached") }
		if !live.Changed(t.Context(), []byte(rules(rule("secrets", identity))), nil) {
			t.Fatal("not taken up")
		}
		before := asked()
		time.Sleep(9 * time.Second)
		if asked() == before {
			t.Error("the plugin of the one before is not asked any more")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		before = asked()
		time.Sleep(time.Minute)
		if n := asked(); n != before {
			t.Errorf("the plugin is asked %d times after it was replaced for long", n-before)
		}
	})
}

// TestNothingIsTakenUpAfterTheEnd, as nobody would end it.
func TestNothingIsTakenUpAfterTheEnd(t *testing.T) {
	p := kmstest.New(t)
	live := openWith(t, builder(t), rules(rule("secrets", identity)), true)
	first := live.Current()
	live.Close()
	if !live.Changed(t.Context(), []byte(kmsRule(p, 5*time.Second)), nil) || live.Current() != first {
		t.Error("it was taken up")
	}
	encryption.Plain().Close() // has nothing to end
}
