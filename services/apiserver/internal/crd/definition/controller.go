package definition

import (
	"context"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// Client writes definitions as the server itself.
type Client interface {
	// PatchStatus sends a JSON merge patch to the status of a definition. It returns a conflict
	// unless all preconditions hold.
	PatchStatus(ctx context.Context, name string, patch any, preconditions ...storage.Precondition) error
}

// Config holds the dependencies of a Controller.
type Config struct {
	// Definitions is the watch cache of definitions.
	Definitions *watchcache.Store
	Client      Client
	Instances   Instances
	// Definable reports whether definitions may define a resource: it is not built in and has a key
	// prefix of its own in the store (HasOwnKeyPrefix).
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
	// failed holds the names of the definitions whose status could not be written.
	failed map[string]bool
	// summaries holds the definitions that addDefinition has decoded. writeStatuses clears it.
	summaries map[*objects.Entry]*v1.CustomResourceDefinition
	cleaner   *cleaner
}

// Times and limits of a Controller.
const (
	// retryInterval is the pause before another attempt to write a status.
	retryInterval = time.Second
	// waitTimeout bounds WaitForRevision.
	waitTimeout = 2 * time.Second
	// maxStatusWrites is the number of concurrent status writes.
	maxStatusWrites = 8
)

// NewController returns a controller. It works while Run runs.
func NewController(config Config) *Controller {
	c := &Controller{Config: config, cleaner: newCleaner(config)}
	c.informer = informer.New(informer.Config{Store: config.Definitions, Replace: c.replace, Apply: c.apply})
	return c
}

// WaitForRevision waits until the controller has handled the changes up to a revision, so that a
// client finds its new definition established. It waits at most waitTimeout. After that, the
// status may follow later.
func (c *Controller) WaitForRevision(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	_ = c.informer.WaitFor(ctx, revision)
}

// Started reports whether the controller has handled all definitions that existed at its start.
// Failed status writes do not delay it; the controller retries them.
func (c *Controller) Started() bool { return c.informer.Loaded() }

// Run keeps the status of definitions up to date until ctx ends or the watch cache stops.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.cleaner.wait()
	defer cancel()
	return c.informer.Run(ctx)
}

// replace handles all definitions of the watch cache.
func (c *Controller) replace(ctx context.Context, entries []*objects.Entry, _ int64) {
	c.names = NewNameConflicts()
	c.failed = map[string]bool{}
	c.summaries = map[*objects.Entry]*v1.CustomResourceDefinition{}
	for _, e := range entries {
		c.addDefinition(e)
	}
	c.writeStatuses(ctx)
}

// apply handles changed definitions and retries failed status writes.
func (c *Controller) apply(ctx context.Context, changes []watchcache.Event, _ int64) {
	for _, event := range changes {
		if event.Type == watchcache.Deleted {
			c.names.Remove(groupOf(event.Entry.Name()), event.Entry.Name())
		} else {
			c.addDefinition(event.Entry)
		}
	}
	c.writeStatuses(ctx)
}

// addDefinition adds a definition to names, or replaces it. A definition that cannot be decoded
// keeps its names, so that no other definition gets them.
func (c *Controller) addDefinition(entry *objects.Entry) {
	definition, err := SummaryOf(entry)
	if err != nil {
		c.Logger.Error("failed to decode a CustomResourceDefinition", "definition", entry.Name(), "error", err)
		return
	}
	c.names.Put(groupOf(entry.Name()), NewNameClaim(definition, entry.CreateRevision))
	c.summaries[entry] = definition
}

// writeStatuses updates the statuses of changed definitions and retries failed ones.
func (c *Controller) writeStatuses(ctx context.Context) {
	// 1. Collect the definitions whose decision has changed or whose last write failed.
	due := map[string]bool{}
	for _, change := range c.names.Resolve() {
		delete(c.failed, change.Name)
		if !change.Removed {
			due[change.Name] = true
		}
	}
	for name := range c.failed {
		due[name] = true
	}
	clear(c.failed)
	defer clear(c.summaries)

	// 2. Write their statuses concurrently.
	var mu sync.Mutex
	var work sync.WaitGroup
	slots := make(chan struct{}, maxStatusWrites)
	for name := range due {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			if err := c.writeStatus(ctx, name); err != nil && ctx.Err() == nil {
				c.Logger.Error("failed to update the status of a CustomResourceDefinition; retrying", "definition", name, "error", err)
				mu.Lock()
				defer mu.Unlock()
				c.failed[name] = true
			}
		})
	}
	work.Wait()
	if len(c.failed) > 0 {
		c.informer.TriggerAfter(retryInterval)
	}
}

// writeStatus writes the status of one definition if it differs from the desired one.
func (c *Controller) writeStatus(ctx context.Context, name string) error {
	entry, ok := c.Definitions.Get(c.Definitions.Prefix() + name)
	if !ok {
		return nil
	}
	definition := c.summaries[entry]
	if definition == nil {
		var err error
		if definition, err = SummaryOf(entry); err != nil {
			return nil // addDefinition has logged the error
		}
	}
	decision, ok := c.names.Decision(groupOf(name), name)
	if !ok {
		return nil
	}
	if definition.DeletionTimestamp != nil {
		c.cleaner.start(ctx, name, decision.Established)
	}
	write := &statusWrite{client: c.Client, definition: definition, revision: entry.Revision, now: metav1.NewTime(c.Now().UTC().Truncate(time.Second))}
	if !setStatus(definition, decision, write.now) {
		return nil
	}
	_, err := write.patchStatus(ctx)
	return err
}
