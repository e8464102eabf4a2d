package handlers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWatchTimeoutIsRequestedOrRandom checks that a watch has the timeout of the client, or a random
// one from MinRequestTimeout to twice as long.
func TestWatchTimeoutIsRequestedOrRandom(t *testing.T) {
	api := &API{Config: Config{MinRequestTimeout: time.Hour}}
	seconds := func(n int64) *int64 { return &n }
	for name, test := range map[string]struct {
		requested        *int64
		minimum, maximum time.Duration
	}{
		"no timeout":       {minimum: time.Hour, maximum: 2 * time.Hour},
		"timeout of 0":     {requested: seconds(0), minimum: time.Hour, maximum: 2 * time.Hour},
		"timeout of 5 s":   {requested: seconds(5), minimum: 5 * time.Second, maximum: 5 * time.Second},
		"negative timeout": {requested: seconds(-5), minimum: -5 * time.Second, maximum: -5 * time.Second},
	} {
		got := api.watchTimeout(&listOptions{ListOptions: metav1.ListOptions{TimeoutSeconds: test.requested}})
		if got < test.minimum || got > test.maximum {
			t.Errorf("%s: got %v, want %v to %v", name, got, test.minimum, test.maximum)
		}
	}
}
