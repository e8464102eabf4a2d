package definition

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// Instances gives access to the objects of custom resources.
type Instances interface {
	// Count returns the number of objects in the store.
	Count(ctx context.Context, group, resource string) (int64, error)
	// Delete deletes the objects. It marks objects that have finalizers and leaves them.
	Delete(ctx context.Context, group, resource string) error
	// RequireNoInstances returns the precondition that there is no object.
	RequireNoInstances(group, resource string) (storage.Precondition, error)
}

// Times and numbers of a cleaner.
const (
	// maxCleanups is the number of definitions whose objects are deleted at the same time.
	maxCleanups = 8
	// The pause between counts of the remaining objects grows from firstCountPause to
	// maxCountPause. The pause between deletions grows from firstDeletePause to maxDeletePause.
	firstCountPause, maxCountPause   = 50 * time.Millisecond, 5 * time.Second
	firstDeletePause, maxDeletePause = time.Second, time.Minute
	// confirmTimeout is the time after which the condition reports that objects remain.
	confirmTimeout = time.Minute
)

// cleaner deletes the objects of deleted definitions and then releases the definitions.
type cleaner struct {
	Config
	slots chan struct{}  // limits concurrent deletions
	work  sync.WaitGroup // the running cleanups

	mu      sync.Mutex
	running map[string]bool // names of definitions
}

func newCleaner(c Config) *cleaner {
	return &cleaner{Config: c, slots: make(chan struct{}, maxCleanups), running: map[string]bool{}}
}

// start starts the cleanup of a definition unless it is already running.
func (c *cleaner) start(ctx context.Context, name string, established bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[name] {
		return
	}
	c.running[name] = true
	c.work.Go(func() {
		job := &cleanup{cleaner: c, name: name, established: established, deletePause: firstDeletePause}
		job.run(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, name)
	})
}

// wait returns when all cleanups have ended.
func (c *cleaner) wait() { c.work.Wait() }

// cleanup deletes the objects of one definition, and then releases the definition. Several replicas
// may run it at the same time.
type cleanup struct {
	*cleaner
	name        string
	established bool // according to the decision on the definition
	// remaining is the number of objects at the last count.
	remaining int64
	// Objects are deleted at nextDeletion. While their number does not fall, they are deleted again
	// after growing pauses.
	nextDeletion time.Time
	deletePause  time.Duration
}

// run works until the definition is released.
func (c *cleanup) run(ctx context.Context) {
	pause := firstCountPause
	for {
		definition, revision := c.terminating()
		if definition == nil {
			return
		}
		err := c.runStep(ctx, definition, revision)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.Logger.Error("failed to delete the objects of a CustomResourceDefinition; retrying", "definition", c.name, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, maxCountPause)
	}
}

// terminating returns the definition, or nil if it is gone or if only other finalizers remain.
func (c *cleanup) terminating() (*v1.CustomResourceDefinition, int64) {
	entry, ok := c.Definitions.Get(c.Definitions.Prefix() + c.name)
	if !ok {
		return nil, 0
	}
	definition, err := SummaryOf(entry)
	if err != nil || definition.DeletionTimestamp == nil || !slices.Contains(definition.Finalizers, v1.CustomResourceCleanupFinalizer) {
		return nil, 0
	}
	return definition, entry.Revision
}

// runStep runs the next step of the cleanup. The replica that sets the condition to "in progress"
// deletes at once. A replica that finds the condition set deletes later, and only while the number
// of objects does not fall.
func (c *cleanup) runStep(ctx context.Context, definition *v1.CustomResourceDefinition, revision int64) error {
	write := &statusWrite{client: c.Client, definition: definition, revision: revision, now: metav1.NewTime(c.Now().UTC().Truncate(time.Second))}
	terminating := findCondition(&definition.Status, v1.Terminating)
	switch {
	case !c.Definable(definition.Spec.Group, definition.Spec.Names.Plural):
		return write.removeFinalizer(ctx, overlapReason, overlapMessage)
	case !c.established && !IsTrue(definition, v1.Established):
		return write.removeFinalizer(ctx, "NeverEstablished", "resource was never established")
	case terminating == nil || terminating.Reason == "InstanceDeletionPending":
		recorded, err := write.recordProgress(ctx, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
		if err != nil || !recorded {
			return err
		}
		c.nextDeletion = c.Now()
	case c.nextDeletion.IsZero():
		c.nextDeletion = c.Now().Add(c.deletePause)
	}
	if err := c.deleteAndCount(ctx, write); err != nil || c.remaining > 0 {
		return err
	}
	none, err := c.Instances.RequireNoInstances(definition.Spec.Group, definition.Spec.Names.Plural)
	if err != nil {
		return err
	}
	// The precondition catches objects that were created since the count.
	return write.removeFinalizer(ctx, "InstanceDeletionCompleted", "removed all instances", none)
}

// deleteAndCount deletes the objects if a deletion is due, and counts the remaining ones.
func (c *cleanup) deleteAndCount(ctx context.Context, write *statusWrite) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	group := write.definition.Spec.Group
	resource := write.definition.Spec.Names.Plural

	// 1. Count the objects. While their number falls, another replica deletes them.
	before := c.remaining
	var err error
	if c.remaining, err = c.Instances.Count(ctx, group, resource); err != nil {
		return write.recordFailure(ctx, "could not list instances: ", err)
	}
	if c.remaining > 0 && c.remaining < before {
		c.deletePause = firstDeletePause
		c.nextDeletion = c.Now().Add(c.deletePause)
	}

	// 2. Delete them if a deletion is due.
	if c.remaining > 0 && !c.Now().Before(c.nextDeletion) {
		c.nextDeletion = c.Now().Add(c.deletePause)
		c.deletePause = min(2*c.deletePause, maxDeletePause)
		if err := c.Instances.Delete(ctx, group, resource); err != nil {
			return write.recordFailure(ctx, "could not issue all deletes: ", err)
		}
		if c.remaining, err = c.Instances.Count(ctx, group, resource); err != nil {
			return write.recordFailure(ctx, "could not list instances: ", err)
		}
	}

	// 3. Report that objects remain for long.
	terminating := findCondition(&write.definition.Status, v1.Terminating)
	isOverdue := terminating.Reason == "InstanceDeletionInProgress" &&
		write.now.Sub(terminating.LastTransitionTime.Time) > confirmTimeout
	if c.remaining > 0 && isOverdue {
		_, err = write.recordProgress(ctx, "InstanceDeletionCheck",
			"could not confirm zero CustomResources remaining: "+context.DeadlineExceeded.Error())
	}
	return err
}
