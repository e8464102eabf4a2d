package backends

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"binnacle/services/apiserver/internal/security/audit"
)

// A short line precedes waiting long lines, and long lines are written completely.
func TestShortLinePrecedesWaitingLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, out := newFixture(t), newBlockedWriter()
		o := logOptions(stdoutPath)
		o.Truncate.MaxEventSize = 1 << 20
		b, err := NewLog(o, f.config, out)
		if err != nil {
			t.Fatal(err)
		}
		for n, size := range []int{maxPooled, maxPooled, maxPooled, 10} {
			go func() { _ = b.Process(context.Background(), updateEvent(n, size)) }()
			synctest.Wait()
		}
		close(out.open)
		synctest.Wait()
		if got := strings.Join(idsOf(t, out.String()), " "); got != "e0 e3 e1 e2" {
			t.Errorf("got order %s, want e0 e3 e1 e2", got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		f.wantLost(logName, 0)
	})
}

// updateEvent returns the event of an update.
func updateEvent(n, size int) *audit.Event {
	e := event(n, size)
	e.Verb = "update"
	return e
}

// countingLimiter counts acquisitions and releases.
type countingLimiter struct{ entered, left int }

func (t *countingLimiter) Acquire(context.Context) error { t.entered++; return nil }
func (t *countingLimiter) Release()                      { t.left++ }

// Encoding a long event needs a permit.
func TestLongEventsNeedPermit(t *testing.T) {
	for _, mode := range Modes() {
		f, out, had := newFixture(t), &safeBuffer{}, &countingLimiter{}
		f.config.Limiter = had
		o := logOptions(stdoutPath)
		o.Mode, o.Truncate.MaxEventSize = mode, 1<<20
		b := f.log(o, out)
		stop := f.run(b)
		for n, size := range []int{10, maxPooled, 10, 2 * maxPooled} {
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
