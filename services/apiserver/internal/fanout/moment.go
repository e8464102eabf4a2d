package fanout

import (
	"math"
	"sync/atomic"
	"time"
)

// moment is when something was so last. It is counted from a beginning by the clock
// that nobody sets: one that was set back would keep a moment young for hours.
type moment struct {
	now   func() time.Time
	began time.Time
	after atomic.Int64 // nanoseconds since began; 0 is never
}

func (m *moment) begin(now func() time.Time) { m.now, m.began = now, now() }

// note that it is so now.
func (m *moment) note() { m.after.Store(max(int64(m.now().Sub(m.began)), 1)) }

// age is how long ago it was so.
func (m *moment) age() time.Duration {
	at := m.after.Load()
	if at == 0 {
		return math.MaxInt64
	}
	return m.now().Sub(m.began) - time.Duration(at)
}
