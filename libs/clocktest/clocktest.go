// Package clocktest simulates changes of the wall clock.
package clocktest

import (
	"testing"
	"time"
	"unsafe"
)

// Set returns a time that was just read from a clock as if that clock had been set forward or back
// by whole seconds before. Differences to other times, read before or after, remain the real ones.
func Set(t testing.TB, read time.Time, ahead time.Duration) time.Time {
	t.Helper()
	// With the monotonic clock, package time stores the seconds since 1885 here.
	const hasMonotonic, secondsAt = 1 << 63, 30
	set := read
	raw := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&set))
	if raw.wall&hasMonotonic == 0 {
		t.Fatal("the time has no monotonic clock reading")
	}
	raw.wall += uint64(ahead/time.Second) << secondsAt
	if set.Sub(read) != 0 || set.Round(0).Sub(read.Round(0)) != ahead.Truncate(time.Second) {
		t.Fatal("the layout of time.Time has changed")
	}
	return set
}
