// Package clocktest tells times as a clock does that was set.
package clocktest

import (
	"testing"
	"time"
	"unsafe"
)

// Set is a time that was read from a clock now, as it would be had somebody set that
// clock ahead before, or back, by whole seconds: what passes between it and others that
// were read, before or after, is what really passes.
func Set(t testing.TB, read time.Time, ahead time.Duration) time.Time {
	t.Helper()
	// Package time tells of its seconds of 1885, beside the monotonic clock.
	const hasMonotonic, secondsAt = 1 << 63, 30
	set := read
	raw := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&set))
	if raw.wall&hasMonotonic == 0 {
		t.Fatal("a time without a monotonic clock")
	}
	raw.wall += uint64(ahead/time.Second) << secondsAt
	if set.Sub(read) != 0 || set.Round(0).Sub(read.Round(0)) != ahead.Truncate(time.Second) {
		t.Fatal("package time keeps its times in another way")
	}
	return set
}
