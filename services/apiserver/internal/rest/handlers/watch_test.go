package handlers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWatchTimeout(t *testing.T) {
	a := &API{Config: Config{MinRequestTimeout: time.Hour}}
	number := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		requested *int64
		from, to  time.Duration
	}{
		{nil, time.Hour, 2 * time.Hour},
		{number(0), time.Hour, 2 * time.Hour}, // like no timeout
		{number(5), 5 * time.Second, 5 * time.Second},
		{number(-5), -5 * time.Second, -5 * time.Second},
	} {
		got := a.watchTimeout(&listOptions{ListOptions: metav1.ListOptions{TimeoutSeconds: c.requested}})
		if got < c.from || got > c.to {
			t.Errorf("%v: got %v, want %v to %v", c.requested, got, c.from, c.to)
		}
	}
}
