package definition

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/watchcache"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// Client writes definitions as the server itself.
type Client interface {
	// PatchStatus sends a JSON merge patch to the status of a definition. It returns a conflict
	// unless all preconditions hold.
	PatchStatus(ctx context.Context, name string, patch any, while ...storage.Premise) error
}

// Config holds the dependencies of a Keeper.
type Config struct {
	// Definitions is the watch cache of definitions.
	Definitions *watchcache.Store
	Client      Client
	Instances   Instances
	// Definable reports whether definitions may define a resource: it is not built in and has a key
	// prefix of its own in the store (HasOwnPlace).
	Definable func(group, resource string) bool
	Logger    *slog.Logger
	Now       func() time.Time
}

// Keeper writes the status of definitions and cleans up after deleted ones. Every replica runs one.
type Keeper struct {
	Config
	names *Names
	// late holds the definitions whose status could not be written.
	late map[string]bool
	// heads holds the definitions that were read from changed entries. write clears it.
	heads map[*watchcache.Entry]*v1.CustomResourceDefinition
	clean *cleaner
	// passed reports whether the keeper has handled all definitions of the initial state.
	passed atomic.Bool

	mu sync.Mutex
	// done is the revision up to which all changes are handled. moved is closed when it grows.
	done  int64
	moved chan struct{}
}

// Times and limits of a Keeper.
const (
	// retryPause is the pause before another attempt to write a status.
	retryPause = time.Second
	// settleWithin bounds Settled.
	settleWithin = 2 * time.Second
	// writers is the number of concurrent status writes.
	writers = 8
)

// NewKeeper returns a keeper. It works while Run runs.
func NewKeeper(c Config) *Keeper {
	return &Keeper{Config: c, clean: newCleaner(c), moved: make(chan struct{})}
}

// Settled waits until the keeper has handled the changes up to a revision, so that a client finds
// its new definition established. It waits at most settleWithin. The status may follow later.
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

// begin resets the handled revision, which may belong to a history that the store no longer has.
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

// Run keeps the status of definitions up to date until ctx ends or the watch cache stops.
func (k *Keeper) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer k.clean.wait()
	defer cancel()
	return watchcache.Follow(ctx, k.follow)
}

// follow handles all definitions and then each change, until its position in the history is lost.
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

// Started reports whether the keeper has handled all definitions that existed at its start. A
// status that it could not write does not count: the keeper retries it.
func (k *Keeper) Started() bool { return k.passed.Load() }

// next waits for events, or until a retry is due.
func (k *Keeper) next(ctx context.Context, w *watchcache.Watcher, buf []watchcache.Event) ([]watchcache.Event, error) {
	if len(k.late) > 0 {
		timer := time.AfterFunc(retryPause, w.Nudge)
		defer timer.Stop()
	}
	return w.Next(ctx, buf)
}

// note adds a change to the set of definitions.
func (k *Keeper) note(ev watchcache.Event) {
	group := groupOf(ev.Entry.Name())
	if ev.Type == watchcache.Deleted {
		k.names.Remove(group, ev.Entry.Name())
		return
	}
	d, err := HeadOf(ev.Entry)
	if err != nil {
		// It keeps its names: no other definition may take them meanwhile.
		k.Logger.Error("a definition cannot be read", "definition", ev.Entry.Name(), "error", err)
		return
	}
	k.names.Put(group, ClaimOf(d, ev.Entry.CreateRevision))
	k.heads[ev.Entry] = d
}

// write updates the statuses of changed definitions and retries failed ones.
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

// keep writes the status of one definition if it differs from the desired one.
func (k *Keeper) keep(ctx context.Context, name string) error {
	e, ok := k.Definitions.Get(k.Definitions.Prefix() + name)
	if !ok {
		return nil
	}
	d := k.heads[e]
	if d == nil {
		var err error
		if d, err = HeadOf(e); err != nil {
			return nil // note has logged the error
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
