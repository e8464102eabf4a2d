package definition

import (
	"context"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/watchcache"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// Client writes definitions as the server itself.
type Client interface {
	// PatchStatus sends a JSON merge patch to the status of a definition. It returns a conflict
	// unless all preconditions hold.
	PatchStatus(ctx context.Context, name string, patch any, while ...storage.Precondition) error
}

// Config holds the dependencies of a Controller.
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

// Controller writes the status of definitions and cleans up after deleted ones. Every replica runs
// one.
type Controller struct {
	Config
	informer *informer.Informer
	names    *NameConflicts
	// failed holds the definitions whose status could not be written.
	failed map[string]bool
	// heads holds the definitions that were read from changed entries. write clears it.
	heads   map[*watchcache.Entry]*v1.CustomResourceDefinition
	cleaner *cleaner
}

// Times and limits of a Controller.
const (
	// retryInterval is the pause before another attempt to write a status.
	retryInterval = time.Second
	// settleTimeout bounds Settled.
	settleTimeout = 2 * time.Second
	// maxStatusWrites is the number of concurrent status writes.
	maxStatusWrites = 8
)

// NewController returns a controller. It works while Run runs.
func NewController(c Config) *Controller {
	k := &Controller{Config: c, cleaner: newCleaner(c)}
	k.informer = informer.New(informer.Config{Store: c.Definitions, Replace: k.replace, Apply: k.apply})
	return k
}

// Settled waits until the controller has handled the changes up to a revision, so that a client
// finds its new definition established. It waits at most settleTimeout. The status may follow
// later.
func (k *Controller) Settled(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_ = k.informer.WaitFor(ctx, revision) // bounded: the status may follow later
}

// Started reports whether the controller has handled all definitions that existed at its start. A
// status that it could not write does not count: the controller retries it.
func (k *Controller) Started() bool { return k.informer.Loaded() }

// Run keeps the status of definitions up to date until ctx ends or the watch cache stops.
func (k *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer k.cleaner.wait()
	defer cancel()
	return k.informer.Run(ctx)
}

// replace handles all definitions.
func (k *Controller) replace(ctx context.Context, entries []*watchcache.Entry, _ int64) {
	k.names = NewNameConflicts()
	k.failed = map[string]bool{}
	k.heads = map[*watchcache.Entry]*v1.CustomResourceDefinition{}
	for _, e := range entries {
		k.put(e)
	}
	k.writeStatuses(ctx)
}

// apply handles changed definitions, and retries.
func (k *Controller) apply(ctx context.Context, changes []watchcache.Event, _ int64) {
	for _, ev := range changes {
		if ev.Type == watchcache.Deleted {
			k.names.Remove(groupOf(ev.Entry.Name()), ev.Entry.Name())
		} else {
			k.put(ev.Entry)
		}
	}
	k.writeStatuses(ctx)
}

// put adds a definition to the set.
func (k *Controller) put(e *watchcache.Entry) {
	d, err := HeadOf(e)
	if err != nil {
		// It keeps its names, so that no other definition takes them.
		k.Logger.Error("a definition cannot be read", "definition", e.Name(), "error", err)
		return
	}
	k.names.Put(groupOf(e.Name()), ClaimOf(d, e.CreateRevision))
	k.heads[e] = d
}

// writeStatuses updates the statuses of changed definitions and retries failed ones.
func (k *Controller) writeStatuses(ctx context.Context) {
	due := map[string]bool{}
	for _, c := range k.names.Settle() {
		delete(k.failed, c.Name)
		if !c.Gone {
			due[c.Name] = true
		}
	}
	for name := range k.failed {
		due[name] = true
	}
	clear(k.failed)
	defer clear(k.heads)
	var mu sync.Mutex
	var work sync.WaitGroup
	slots := make(chan struct{}, maxStatusWrites)
	for name := range due {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			if err := k.writeStatus(ctx, name); err != nil && ctx.Err() == nil {
				k.Logger.Error("failed to update the status of a CustomResourceDefinition; retrying", "definition", name, "error", err)
				mu.Lock()
				defer mu.Unlock()
				k.failed[name] = true
			}
		})
	}
	work.Wait()
	if len(k.failed) > 0 {
		k.informer.NudgeAfter(retryInterval)
	}
}

// writeStatus writes the status of one definition if it differs from the desired one.
func (k *Controller) writeStatus(ctx context.Context, name string) error {
	e, ok := k.Definitions.Get(k.Definitions.Prefix() + name)
	if !ok {
		return nil
	}
	d := k.heads[e]
	if d == nil {
		var err error
		if d, err = HeadOf(e); err != nil {
			return nil // put has logged the error
		}
	}
	verdict, ok := k.names.Of(groupOf(name), name)
	if !ok {
		return nil
	}
	if d.DeletionTimestamp != nil {
		k.cleaner.add(ctx, name, verdict.Established)
	}
	w := &statusWrite{client: k.Client, d: d, revision: e.Revision, now: metav1.NewTime(k.Now().UTC().Truncate(time.Second))}
	if !Status(d, verdict, w.now) {
		return nil
	}
	_, err := w.send(ctx, nil)
	return err
}
