package backends

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"binnacle/services/apiserver/internal/security/audit"
)

// TestShortLinesGoBeforeLongOnes that wait, and long ones stay whole.
func TestShortLinesGoBeforeLongOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, out := newFixture(t), newGated()
		o := logOptions(standard)
		o.Truncate.MaxEventSize = 1 << 20
		b, err := NewLog(o, f.config, out)
		if err != nil {
			t.Fatal(err)
		}
		for n, size := range []int{maxPooled, maxPooled, maxPooled, 10} {
			go func() { _ = b.Process(context.Background(), updated(n, size)) }()
			synctest.Wait()
		}
		close(out.open)
		synctest.Wait()
		if got := strings.Join(idsOf(t, out.String()), " "); got != "e0 e3 e1 e2" {
			t.Errorf("they are written as %s", got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		f.wantLost(logName, 0)
	})
}

// updated is the event of a change.
func updated(n, size int) *audit.Event {
	e := event(n, size)
	e.Verb = "update"
	return e
}

// turns count who has one.
type turns struct{ entered, left int }

func (t *turns) Enter(context.Context) error { t.entered++; return nil }
func (t *turns) Leave()                      { t.left++ }

// TestLongEventsTakeTurns, which they do not have while they are written.
func TestLongEventsTakeTurns(t *testing.T) {
	for _, mode := range Modes() {
		f, out, had := newFixture(t), &safeBuffer{}, &turns{}
		f.config.Turns = had
		o := logOptions(standard)
		o.Mode, o.Truncate.MaxEventSize = mode, 1<<20
		b := f.log(o, out)
		stop := f.run(b)
		for n, size := range []int{10, maxPooled, 10, 2 * maxPooled} {
			if err := b.Process(t.Context(), updated(n, size)); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if *had != (turns{2, 2}) {
			t.Errorf("%s: %+v of 2 long events", mode, *had)
		}
		if got := strings.Join(idsOf(t, out.String()), " "); got != "e0 e1 e2 e3" {
			t.Errorf("%s: there are %s", mode, got)
		}
	}
}
