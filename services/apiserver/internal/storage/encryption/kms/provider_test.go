package kms_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

// patience bounds waits for expected events.
const patience = 30 * time.Second

// TestImpatientRequestsSkipSilentPlugin checks that requests that must not wait do not call a
// silent plugin until it responds again, which is reported once.
func TestImpatientRequestsSkipSilentPlugin(t *testing.T) {
	const silent = "did not respond recently"
	for _, test := range []struct {
		name, method string
		check        bool // call Status instead of Decrypt
		healed       bool // Status detects that the plugin responds again
	}{
		{name: "status", method: "Status", check: true, healed: true},
		{name: "decryption, with a healthy status", method: "Decrypt"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			plugin := kmstest.New(t)
			sealed := sealedBySeed(t, plugin)
			another := sealedBySeed(t, plugin)
			cfg := newConfig(t, plugin)
			cfg.Timeout = time.Second
			recovered := 0
			cfg.Recovered = func() { recovered++ }
			provider := newV2Provider(t, cfg)
			impatient := kms.FailFast(t.Context())
			recovered = 0
			plugin.HangMethod(test.method)
			if test.check {
				checkError(t, "Check", provider.Check(t.Context()), "DeadlineExceeded")
			} else {
				_, _, err := provider.Open(t.Context(), sealed, storedKey)
				checkError(t, "Open", err, "DeadlineExceeded")
				checkError(t, "Check", provider.Check(t.Context()), "")
				recovered = 0 // reported by the status
			}
			before := plugin.Calls("Decrypt")
			_, _, err := provider.Open(impatient, another, storedKey)
			checkError(t, "impatient Open", err, silent)
			if plugin.Calls("Decrypt") != before {
				t.Error("impatient Open: got a call of the silent plugin, want none")
			}
			plugin.Resume()
			if test.healed {
				checkError(t, "Check", provider.Check(t.Context()), "")
			} else {
				_, _, err = provider.Open(t.Context(), sealed, storedKey)
				checkError(t, "Open", err, "")
			}
			_, _, err = provider.Open(impatient, another, storedKey)
			checkError(t, "impatient Open", err, "")
			if recovered != 1 {
				t.Errorf("Recovered was called %d times, want 1", recovered)
			}
		})
	}
}

// TestHealthIsCached checks that healthy and unhealthy results are cached for their own time.
func TestHealthIsCached(t *testing.T) {
	for _, test := range []struct {
		name, health string
		healthyTTL   time.Duration
		unhealthyTTL time.Duration
		calls        int // by the constructor and two checks
	}{
		{name: "healthy result, cached", health: "ok", healthyTTL: time.Hour, unhealthyTTL: time.Nanosecond, calls: 1},
		{
			name:         "healthy result, not cached",
			health:       "ok",
			healthyTTL:   time.Nanosecond,
			unhealthyTTL: time.Hour,
			calls:        3,
		},
		{name: "unhealthy result, cached", health: "no", healthyTTL: time.Nanosecond, unhealthyTTL: time.Hour, calls: 1},
		{
			name:         "unhealthy result, not cached",
			health:       "no",
			healthyTTL:   time.Hour,
			unhealthyTTL: time.Nanosecond,
			calls:        3,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := kmstest.New(t)
			p.SetHealth(test.health)
			cfg := newConfig(t, p)
			cfg.Intervals.HealthyTTL = test.healthyTTL
			cfg.Intervals.UnhealthyTTL = test.unhealthyTTL
			provider := newV2Provider(t, cfg)
			for range 2 {
				if err := provider.Check(t.Context()); (err != nil) != (test.health == "no") {
					t.Errorf("Check: got %v", err)
				}
			}
			if n := p.Calls("Status"); n != test.calls {
				t.Errorf("got %d calls, want %d", n, test.calls)
			}
		})
	}
}

// TestProbeIntervalDependsOnHealth checks that healthy and unhealthy plugins are probed at their own
// interval.
func TestProbeIntervalDependsOnHealth(t *testing.T) {
	for _, test := range []struct {
		health                             string
		healthyInterval, unhealthyInterval time.Duration
	}{
		{health: "ok", healthyInterval: time.Millisecond, unhealthyInterval: time.Hour},
		{health: "no", healthyInterval: time.Hour, unhealthyInterval: time.Millisecond},
	} {
		t.Run(test.health, func(t *testing.T) {
			p := kmstest.New(t)
			p.SetHealth(test.health)
			cfg := newConfig(t, p)
			cfg.Intervals.HealthyInterval = test.healthyInterval
			cfg.Intervals.UnhealthyInterval = test.unhealthyInterval
			provider := newV2Provider(t, cfg)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { provider.Run(ctx); close(done) }()
			for deadline := time.Now().Add(patience); p.Calls("Status") < 4; time.Sleep(time.Millisecond) { // between polls
				if time.Now().After(deadline) {
					t.Error("got no probe of the plugin in time, want one")
					break
				}
			}
			cancel()
			<-done
		})
	}
}

// TestConflictingMetricsFail checks that a registered metric with the same name and another form
// is an error.
func TestConflictingMetricsFail(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "apiserver_storage_envelope_transformation_cache_misses_total",
		Help: "Another.",
	}))
	if _, err := kms.NewMetrics(reg); err == nil {
		t.Error("got no error for a conflicting metric, want one")
	}
}
