package fanout

import (
	"math"
	"sync/atomic"
	"time"
)

// moment is when something last happened. It uses the monotonic clock: after a step back of the
// wall clock, a moment would stay recent for hours.
type moment struct {
	now   func() time.Time
	began time.Time
	after atomic.Int64 // nanoseconds since began; 0 is never
}

func (m *moment) begin(now func() time.Time) { m.now, m.began = now, now() }

// note records that it happens now.
func (m *moment) note() { m.after.Store(max(int64(m.now().Sub(m.began)), 1)) }

// age returns how long ago it last happened, or the maximum if never.
func (m *moment) age() time.Duration {
	at := m.after.Load()
	if at == 0 {
		return math.MaxInt64
	}
	return m.now().Sub(m.began) - time.Duration(at)
}
