package kms_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kmstest"
)

// patience bounds waiting for what must happen.
const patience = 30 * time.Second

// TestPluginsThatAreSilent: those who must not wait ask no more, until the plugin answers
// again, and that is told of once.
func TestPluginsThatAreSilent(t *testing.T) {
	const silent = "did not answer of late"
	for _, c := range []struct {
		name, method string
		check        bool // it is asked for its status, else for a key
		healed       bool // by a status
	}{
		{name: "of its status", method: "Status", check: true, healed: true},
		{name: "of keys, whatever it says of itself", method: "Decrypt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := kmstest.New(t)
			sealed, another := sealedBySeed(t, p), sealedBySeed(t, p)
			cfg := config(t, p)
			cfg.Timeout = time.Second
			recovered := 0
			cfg.Recovered = func() { recovered++ }
			provider := second(t, cfg)
			impatient := kms.Impatient(t.Context())
			recovered = 0
			p.HangOn(c.method)
			if c.check {
				says(t, "checked", provider.Check(t.Context()), "DeadlineExceeded")
			} else {
				_, _, err := provider.Open(t.Context(), sealed, storedAt)
				says(t, "opened", err, "DeadlineExceeded")
				says(t, "checked", provider.Check(t.Context()), "")
				recovered = 0 // so it says
			}
			before := p.Calls("Decrypt")
			_, _, err := provider.Open(impatient, another, storedAt)
			if says(t, "opened in haste", err, silent); p.Calls("Decrypt") != before {
				t.Error("it was asked")
			}
			p.Answer()
			if c.healed {
				says(t, "checked", provider.Check(t.Context()), "")
			} else {
				_, _, err = provider.Open(t.Context(), sealed, storedAt)
				says(t, "opened", err, "")
			}
			_, _, err = provider.Open(impatient, another, storedAt)
			says(t, "opened in haste", err, "")
			if recovered != 1 {
				t.Errorf("it is told of %d times that it answers again", recovered)
			}
		})
	}
}

// TestHealthIsKept for as long as that is wanted of what was found.
func TestHealthIsKept(t *testing.T) {
	for _, c := range []struct {
		name, health string
		well, ill    time.Duration
		asked        int // with the first time, and two checks
	}{
		{"well, kept", "ok", time.Hour, time.Nanosecond, 1}, {"well, not kept", "ok", time.Nanosecond, time.Hour, 3},
		{"ill, kept", "no", time.Nanosecond, time.Hour, 1}, {"ill, not kept", "no", time.Hour, time.Nanosecond, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := kmstest.New(t)
			p.Say(c.health)
			cfg := config(t, p)
			cfg.Pace.WellKept, cfg.Pace.IllKept = c.well, c.ill
			provider := second(t, cfg)
			for range 2 {
				if err := provider.Check(t.Context()); (err != nil) != (c.health == "no") {
					t.Errorf("checked: %v", err)
				}
			}
			if n := p.Calls("Status"); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
		})
	}
}

// TestPluginsAreAskedAtTheirPace: one that is ill at another.
func TestPluginsAreAskedAtTheirPace(t *testing.T) {
	for _, c := range []struct {
		health    string
		well, ill time.Duration
	}{{"ok", time.Millisecond, time.Hour}, {"no", time.Hour, time.Millisecond}} {
		t.Run(c.health, func(t *testing.T) {
			p := kmstest.New(t)
			p.Say(c.health)
			cfg := config(t, p)
			cfg.Pace.Well, cfg.Pace.Ill = c.well, c.ill
			provider := second(t, cfg)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { provider.Run(ctx); close(done) }()
			for deadline := time.Now().Add(patience); p.Calls("Status") < 4; time.Sleep(time.Millisecond) { // between polls
				if time.Now().After(deadline) {
					t.Error("it is not asked")
					break
				}
			}
			cancel()
			<-done
		})
	}
}

// TestMetricsOfOthers: one of another form under the same name is an error.
func TestMetricsOfOthers(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "apiserver_storage_envelope_transformation_cache_misses_total", Help: "Another."}))
	if _, err := kms.NewMetrics(reg); err == nil {
		t.Error("they are registered twice")
	}
}
