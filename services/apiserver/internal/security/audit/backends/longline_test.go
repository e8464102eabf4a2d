package backends

import (
	"context"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/security/audit"
)

// updateEvent returns the event of an update.
func updateEvent(n, size int) *audit.Event {
	e := newEvent(n, size)
	e.Verb = "update"
	return e
}

// countingLimiter counts acquisitions and releases.
type countingLimiter struct{ entered, left int }

func (t *countingLimiter) Acquire(context.Context) error { t.entered++; return nil }
func (t *countingLimiter) Release()                      { t.left++ }

// TestLongEventsNeedPermit checks that encoding a long event needs a permit.
func TestLongEventsNeedPermit(t *testing.T) {
	for _, mode := range Modes() {
		f, out, had := newFixture(t), &safeBuffer{}, &countingLimiter{}
		f.config.Limiter = had
		o := logOptions(stdoutPath)
		o.Mode, o.Truncate.MaxEventSize = mode, 1<<20
		b := f.newLog(o, out)
		stop := f.runBackend(b)
		for n, size := range []int{10, maxPooledBuffer, 10, 2 * maxPooledBuffer} {
			if err := b.Process(t.Context(), updateEvent(n, size)); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if *had != (countingLimiter{2, 2}) {
			t.Errorf("%s: got %+v, want 2 acquisitions and releases", mode, *had)
		}
		if got := strings.Join(idsOf(t, out.String()), " "); got != "e0 e1 e2 e3" {
			t.Errorf("%s: got %s, want e0 e1 e2 e3", mode, got)
		}
	}
}
