package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// restartPause is the delay before an informer that missed changes starts again.
const restartPause = 100 * time.Millisecond

// Config describes what an informer follows and where its changes go.
type Config struct {
	Store *watchcache.Store
	// Selection selects objects of the store. The zero value selects all.
	Selection objects.Selection
	// ChangesOnly calls Replace without objects, which then only reports that changes follow.
	ChangesOnly bool
	// Replace receives all objects at a revision, in the order of their keys. They replace
	// everything that was received before.
	Replace func(ctx context.Context, entries []*objects.Entry, revision int64)
	// Apply receives changes in their order. They are complete up to the revision. There may be
	// none after a Trigger.
	Apply func(ctx context.Context, changes []watchcache.Event, revision int64)
	// OnLost, if set, is called when the informer stops receiving changes after a Replace, because
	// it missed some or because Run ends.
	OnLost func(err error)
}

// Informer follows the objects of a resource.
type Informer struct {
	config Config

	mu          sync.Mutex // leaf lock
	watcher     *watchcache.Watcher
	timer       *time.Timer   // of TriggerAfter
	applied     int64         // every change up to this revision has been applied
	incarnation int64         // incarnation of the watch cache that applied belongs to; -1 before the first Replace
	progressed  chan struct{} // closed when applied or incarnation changes
}

// New returns an informer, which works while Run runs.
func New(c Config) *Informer {
	return &Informer{config: c, incarnation: -1, progressed: make(chan struct{})}
}

// Run follows the objects until ctx ends or the watch cache stops. It returns the error of ctx in
// the first case, and nil in the second.
func (i *Informer) Run(ctx context.Context) error {
	for {
		incarnation := i.config.Store.Incarnation()
		err := i.config.Store.WaitReady(ctx)
		if err == nil {
			err = i.followHistory(ctx)
		}
		var expired *watchcache.ExpiredError
		switch {
		case errors.Is(err, watchcache.ErrStopped):
			return nil // the cache itself reports the reason
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &expired) && !errors.Is(err, watchcache.ErrNotReady):
			return fmt.Errorf("follow %s: %w", i.config.Store.Name(), err)
		case i.config.Store.Incarnation() != incarnation:
			continue // immediately: the received state belongs to a discarded history
		}
		select {
		case <-time.After(restartPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// followHistory receives the objects and then each change, until the watcher ends with an error.
func (i *Informer) followHistory(ctx context.Context) (err error) {
	options := watchcache.WatchOptions{Selection: i.config.Selection, Initial: watchcache.InitialState}
	if i.config.ChangesOnly {
		options.Initial = watchcache.InitialNone
		options.AfterRevision = i.config.Store.Snapshot().Revision()
	}
	watcher, err := i.config.Store.Watch(options)
	if err != nil {
		return err
	}
	defer watcher.Close()
	i.setWatcher(watcher)

	// 1. Until loading ends, entries collects the initial objects. With ChangesOnly there are none.
	var entries []*objects.Entry
	loading := true
	if i.config.ChangesOnly {
		loading = false
		i.config.Replace(ctx, nil, options.AfterRevision)
		i.advance(watcher, options.AfterRevision)
	}
	if i.config.OnLost != nil {
		defer func() { // the subscriber lost changes only if it has received a state
			if !loading {
				i.config.OnLost(err)
			}
		}()
	}

	// 2. Receive events. A bookmark ends the initial objects; changes follow.
	var buf []watchcache.Event
	for {
		if buf, err = watcher.Next(ctx, buf); err != nil {
			return err
		}
		if !loading {
			revision := watcher.Revision()
			i.config.Apply(ctx, buf, revision)
			i.advance(watcher, revision)
			continue
		}
		for _, ev := range buf {
			if ev.Type == watchcache.Bookmark {
				i.config.Replace(ctx, entries, ev.Revision)
				i.advance(watcher, ev.Revision)
				loading = false
				entries = nil
				break
			}
			entries = append(entries, ev.Entry)
		}
	}
}

// setWatcher sets the watcher that Trigger notifies.
func (i *Informer) setWatcher(w *watchcache.Watcher) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watcher = w
}

// advance records that every change up to a revision has been applied.
func (i *Informer) advance(w *watchcache.Watcher, revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	incarnation := int64(w.Incarnation())
	if incarnation == i.incarnation && revision <= i.applied {
		return
	}
	i.incarnation = incarnation
	i.applied = revision
	close(i.progressed)
	i.progressed = make(chan struct{})
}

// Synced reports whether the state of the watch cache's current incarnation was received. A new
// incarnation starts when the store was restored from a backup.
func (i *Informer) Synced() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.incarnation == int64(i.config.Store.Incarnation())
}

// Loaded reports whether any state was received. It stays true while the watch cache reloads.
func (i *Informer) Loaded() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.incarnation >= 0
}

// WaitFor blocks until every change up to a revision has been applied.
func (i *Informer) WaitFor(ctx context.Context, revision int64) error {
	if err := i.config.Store.WaitFor(ctx, revision); err != nil {
		return err
	}
	for {
		i.mu.Lock()
		reached := i.applied >= revision && i.incarnation == int64(i.config.Store.Incarnation())
		progressed := i.progressed
		i.mu.Unlock()
		if reached {
			return nil
		}
		i.Trigger()
		select {
		case <-progressed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Trigger causes a call of Apply soon, even if there are no changes. It does nothing before the
// first Replace.
func (i *Informer) Trigger() {
	i.mu.Lock()
	w := i.watcher
	i.mu.Unlock()
	if w != nil {
		w.Trigger()
	}
}

// TriggerAfter calls Trigger after a delay. Only the last call counts.
func (i *Informer) TriggerAfter(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.timer == nil {
		i.timer = time.AfterFunc(d, i.Trigger)
		return
	}
	i.timer.Reset(d)
}
