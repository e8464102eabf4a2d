package definition

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/watchcache"
)

// Client writes definitions as the server itself.
type Client interface {
	// PatchStatus sends a JSON merge patch to the status of a definition. Unless all
	// premises hold it is a conflict.
	PatchStatus(ctx context.Context, name string, patch any, while ...storage.Premise) error
}

// Config is what a Keeper works with.
type Config struct {
	// Definitions is their part of the watch cache.
	Definitions *watchcache.Store
	Client      Client
	Instances   Instances
	// Definable tells of the resources that definitions may define: those that are
	// not built in and have a place of their own in the store (HasOwnPlace).
	Definable func(group, resource string) bool
	Logger    *slog.Logger
	Now       func() time.Time
}

// Keeper writes the status of definitions, and cleans up after those that go.
// Every replica runs one.
type Keeper struct {
	Config
	names *Names
	// late are definitions whose status could not be written.
	late map[string]bool
	// heads were read of what changed, and are used up by write.
	heads map[*watchcache.Entry]*v1.CustomResourceDefinition
	clean *cleaner
	// passed reports whether all definitions of the first state were acted on.
	passed atomic.Bool

	mu sync.Mutex
	// done is the revision up to which everything was acted on; moved is closed
	// when it grows.
	done  int64
	moved chan struct{}
}

// Times of a Keeper.
const (
	// retryPause is before writing a status anew.
	retryPause = time.Second
	// settleWithin bounds Settled.
	settleWithin = 2 * time.Second
	// writers is how many statuses are written at a time.
	writers = 8
)

// NewKeeper returns a keeper, which works while Run does.
func NewKeeper(c Config) *Keeper {
	return &Keeper{Config: c, clean: newCleaner(c), moved: make(chan struct{})}
}

// Settled waits until the keeper has acted on the changes up to a revision, so
// that a client who is told of its definition finds it established. The wait is
// bounded: the status comes later then.
func (k *Keeper) Settled(ctx context.Context, revision int64) {
	timer := time.NewTimer(settleWithin)
	defer timer.Stop()
	for {
		k.mu.Lock()
		done, moved := k.done, k.moved
		k.mu.Unlock()
		if done >= revision {
			return
		}
		select {
		case <-moved:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// begin forgets what was acted on: it may be of a history that the store has no
// more.
func (k *Keeper) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done = 0
}

func (k *Keeper) actedUpTo(revision int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if revision > k.done {
		k.done = revision
		close(k.moved)
		k.moved = make(chan struct{})
	}
}

// Run keeps definitions until ctx ends or the watch cache stops.
func (k *Keeper) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer k.clean.wait()
	defer cancel()
	return watchcache.Follow(ctx, k.follow)
}

// follow looks at all definitions and then at each change, until its place in
// the history is lost.
func (k *Keeper) follow(ctx context.Context) error {
	w, err := k.Definitions.Watch(watchcache.WatchOptions{Initial: watchcache.InitialState})
	if err != nil {
		return err
	}
	defer w.Close()
	k.names, k.late, k.heads = NewNames(), map[string]bool{}, map[*watchcache.Entry]*v1.CustomResourceDefinition{}
	k.begin()
	loading := true
	var buf []watchcache.Event
	for {
		events, err := k.next(ctx, w, buf)
		if err != nil {
			return err
		}
		for _, ev := range events {
			if ev.Type == watchcache.Bookmark {
				loading = false
			} else {
				k.note(ev)
			}
		}
		if loading {
			continue
		}
		at := w.Revision()
		if len(events) > 0 {
			at = max(at, events[len(events)-1].Revision)
		}
		k.write(ctx)
		k.actedUpTo(at)
		k.passed.Store(true)
	}
}

// Started reports whether the keeper has acted on all definitions that existed at its start.
// A status that it could not write does not count: the keeper retries it.
func (k *Keeper) Started() bool { return k.passed.Load() }

// next waits for events, or until those that are late are due again.
func (k *Keeper) next(ctx context.Context, w *watchcache.Watcher, buf []watchcache.Event) ([]watchcache.Event, error) {
	if len(k.late) > 0 {
		timer := time.AfterFunc(retryPause, w.Nudge)
		defer timer.Stop()
	}
	return w.Next(ctx, buf)
}

// note takes a change into the set of definitions.
func (k *Keeper) note(ev watchcache.Event) {
	group := groupOf(ev.Entry.Name())
	if ev.Type == watchcache.Deleted {
		k.names.Remove(group, ev.Entry.Name())
		return
	}
	d, err := HeadOf(ev.Entry)
	if err != nil {
		// It keeps the names that it had: no other definition may take them meanwhile.
		k.Logger.Error("a definition cannot be read", "definition", ev.Entry.Name(), "error", err)
		return
	}
	k.names.Put(group, ClaimOf(d, ev.Entry.CreateRevision))
	k.heads[ev.Entry] = d
}

// write brings the statuses of what changed, and of what is late, in line.
func (k *Keeper) write(ctx context.Context) {
	due := map[string]bool{}
	for _, c := range k.names.Settle() {
		delete(k.late, c.Name)
		if !c.Gone {
			due[c.Name] = true
		}
	}
	for name := range k.late {
		due[name] = true
	}
	clear(k.late)
	defer clear(k.heads)
	var mu sync.Mutex
	var work sync.WaitGroup
	slots := make(chan struct{}, writers)
	for name := range due {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			if err := k.keep(ctx, name); err != nil && ctx.Err() == nil {
				k.Logger.Error("the status of a definition could not be written; trying again", "definition", name, "error", err)
				mu.Lock()
				defer mu.Unlock()
				k.late[name] = true
			}
		})
	}
	work.Wait()
}

// keep writes the status of one definition where it is not what it should be.
func (k *Keeper) keep(ctx context.Context, name string) error {
	e, ok := k.Definitions.Get(k.Definitions.Prefix() + name)
	if !ok {
		return nil
	}
	d := k.heads[e]
	if d == nil {
		var err error
		if d, err = HeadOf(e); err != nil {
			return nil // it was told of
		}
	}
	verdict, ok := k.names.Of(groupOf(name), name)
	if !ok {
		return nil
	}
	if d.DeletionTimestamp != nil {
		k.clean.add(ctx, name, verdict.Established)
	}
	w := &statusWrite{client: k.Client, d: d, revision: e.Revision, now: metav1.NewTime(k.Now().UTC().Truncate(time.Second))}
	if !Status(d, verdict, w.now) {
		return nil
	}
	_, err := w.send(ctx, nil)
	return err
}
