package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// staleAfter is the number of heartbeats without news from any source after which a replica is not
// healthy.
const staleAfter = 10

// State is a snapshot of a replica's end of the stream.
type State struct {
	// Source is "nats", "local" (this replica publishes), "store" or "none".
	Source string
	// Since is when the source was last switched.
	Since time.Time
	// Changes counts the switches of the source.
	Changes int
	// Revision is the revision up to which everything was applied.
	Revision int64
	// Behind is the number of revisions up to the newest known one.
	Behind int64
	// Age is the time since the replica last confirmed that it was current.
	Age time.Duration
	// Publisher is whether this replica publishes.
	Publisher bool
	// Connected is whether NATS is reachable.
	Connected bool
}

// State returns the current state.
func (f *Fanout) State() State {
	newest, _ := f.inbox.newestRevision()
	applied := f.followerState.applied.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	return State{
		Source:    f.currentSource,
		Since:     f.sourceSince,
		Changes:   f.sourceChanges,
		Revision:  applied,
		Behind:    max(0, newest-applied),
		Age:       f.followerState.lastApplied.age(),
		Publisher: f.publisher.Load() != nil,
		Connected: f.link.downFor() == 0,
	}
}

// Check returns an error if no source has given a sign of life for long. A lost connection to NATS
// alone is not a failure.
func (f *Fanout) Check(context.Context) error {
	s := f.State()
	if s.Source == sourceNone {
		return errors.New("the watch of etcd is not running")
	}
	if s.Age > staleAfter*f.heartbeat {
		return fmt.Errorf("no news of changes for %s, reading from source %q", s.Age.Round(time.Millisecond), s.Source)
	}
	return nil
}

// startSources is how many sources a replica has during its start: the store, then the stream.
const startSources = 2

// setSource records, logs and counts a switch of the source.
func (f *Fanout) setSource(source string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.currentSource == source {
		return
	}
	if f.currentSource != sourceNone {
		f.metrics.source.WithLabelValues(f.currentSource).Set(0)
	}
	f.currentSource = source
	f.sourceSince = time.Now()
	if source == sourceNone {
		return
	}
	f.sourceChanges++
	f.metrics.source.WithLabelValues(source).Set(1)
	f.metrics.changes.WithLabelValues(source).Inc()
	level := slog.LevelInfo
	if f.sourceChanges <= startSources {
		level = slog.LevelDebug
	}
	f.log.Log(context.Background(), level, "source of changes", "source", source, "revision", f.followerState.applied.Load())
}

// currentSourceName returns the source that the replica reads from.
func (f *Fanout) currentSourceName() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.currentSource
}

// linkState tracks whether the connection is up.
type linkState struct {
	mu      sync.Mutex // leaf lock, guards the fields below
	up      bool
	since   time.Time
	changed chan struct{} // closed at the next change
}

func (l *linkState) start() { l.since, l.changed = time.Now(), make(chan struct{}) }

// setUp records whether the connection is up.
func (l *linkState) setUp(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up == up {
		return
	}
	l.up = up
	l.since = time.Now()
	close(l.changed)
	l.changed = make(chan struct{})
}

// downFor returns how long the connection has been down, or 0 if it is up.
func (l *linkState) downFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		return 0
	}
	return max(time.Since(l.since), 1)
}

// awaitUp blocks until the connection is up. It returns false if ctx ends first.
func (l *linkState) awaitUp(ctx context.Context) bool {
	for {
		l.mu.Lock()
		up, changed := l.up, l.changed
		l.mu.Unlock()
		if up && ctx.Err() == nil {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// timestamp is when something last happened. It uses the monotonic clock: after a step back of the
// wall clock, a timestamp would stay recent for hours.
type timestamp struct {
	now     func() time.Time
	began   time.Time
	elapsed atomic.Int64 // nanoseconds since began; 0 is never
}

func (m *timestamp) start(now func() time.Time) { m.now, m.began = now, now() }

// set records that it happens now.
func (m *timestamp) set() { m.elapsed.Store(max(int64(m.now().Sub(m.began)), 1)) }

// age returns how long ago it last happened, or the maximum if never.
func (m *timestamp) age() time.Duration {
	elapsed := m.elapsed.Load()
	if elapsed == 0 {
		return math.MaxInt64
	}
	return m.now().Sub(m.began) - time.Duration(elapsed)
}
