package handlers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWatchTimeoutIsRequestedOrRandom checks that a watch has the timeout of the client, or a random
// one from MinRequestTimeout to twice as long.
func TestWatchTimeoutIsRequestedOrRandom(t *testing.T) {
	a := &API{Config: Config{MinRequestTimeout: time.Hour}}
	number := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		requested *int64
		from, to  time.Duration
	}{
		{from: time.Hour, to: 2 * time.Hour},
		{requested: number(0), from: time.Hour, to: 2 * time.Hour}, // like no timeout
		{requested: number(5), from: 5 * time.Second, to: 5 * time.Second},
		{requested: number(-5), from: -5 * time.Second, to: -5 * time.Second},
	} {
		got := a.watchTimeout(&listOptions{ListOptions: metav1.ListOptions{TimeoutSeconds: c.requested}})
		if got < c.from || got > c.to {
			t.Errorf("%v: got %v, want %v to %v", c.requested, got, c.from, c.to)
		}
	}
}
