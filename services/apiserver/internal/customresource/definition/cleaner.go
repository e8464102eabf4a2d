package definition

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// Instances are the objects of resources that definitions define.
type Instances interface {
	// Count is how many there are in the store.
	Count(ctx context.Context, group, resource string) (int64, error)
	// Delete deletes them, respecting their finalizers: those that have some are
	// marked and stay.
	Delete(ctx context.Context, group, resource string) error
	// None is the premise that there is none.
	None(group, resource string) (storage.Premise, error)
}

// Times and numbers of a cleaner.
const (
	// cleaners is how many definitions are cleaned up after at a time.
	cleaners = 8
	// What is left is counted after pauses that grow from one to the other, and
	// deleted again after others that do.
	firstLook, lastLook = 50 * time.Millisecond, 5 * time.Second
	firstPass, lastPass = time.Second, time.Minute
	// confirmWithin is when the condition tells that objects stay.
	confirmWithin = time.Minute
)

// cleaner removes the objects of definitions that are deleted, and then lets go
// of the definitions.
type cleaner struct {
	Config
	slots chan struct{}
	work  sync.WaitGroup

	mu      sync.Mutex
	running map[string]bool // names of definitions
}

func newCleaner(c Config) *cleaner {
	return &cleaner{Config: c, slots: make(chan struct{}, cleaners), running: map[string]bool{}}
}

// add begins to clean up after a definition, unless that is under way.
func (c *cleaner) add(ctx context.Context, name string, established bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[name] {
		return
	}
	c.running[name] = true
	c.work.Go(func() {
		j := &job{cleaner: c, name: name, established: established, passPause: firstPass}
		j.run(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, name)
	})
}

// wait returns when nothing runs any more.
func (c *cleaner) wait() { c.work.Wait() }

// job is the cleaning up after one definition. Any number of replicas may be at
// it: what one has done the others find done.
type job struct {
	*cleaner
	name        string
	established bool
	// left is how many objects were left when they were counted last.
	left int64
	// Objects are deleted at nextPass and, while they do not get fewer, again
	// after pauses that grow.
	nextPass  time.Time
	passPause time.Duration
}

// run works until the definition is let go.
func (j *job) run(ctx context.Context) {
	pause := firstLook
	for {
		d, revision := j.live()
		if d == nil {
			return
		}
		err := j.step(ctx, d, revision)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			j.Logger.Error("the objects of a definition could not be removed; trying again", "definition", j.name, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, lastLook)
	}
}

// live reads the definition; nil when it is gone or waits for somebody else.
func (j *job) live() (*v1.CustomResourceDefinition, int64) {
	e, ok := j.Definitions.Get(j.Definitions.Prefix() + j.name)
	if !ok {
		return nil, 0
	}
	d, err := HeadOf(e)
	if err != nil || d.DeletionTimestamp == nil || !slices.Contains(d.Finalizers, v1.CustomResourceCleanupFinalizer) {
		return nil, 0
	}
	return d, e.Revision
}

// step does what is next. Whoever gets to say that the deletion is in progress
// deletes at once; who finds that said waits whether objects get fewer.
func (j *job) step(ctx context.Context, d *v1.CustomResourceDefinition, revision int64) error {
	w := &statusWrite{client: j.Client, d: d, revision: revision, now: metav1.NewTime(j.Now().UTC().Truncate(time.Second))}
	switch t := find(&d.Status, v1.Terminating); {
	case !j.Definable(d.Spec.Group, d.Spec.Names.Plural):
		return w.release(ctx, overlapReason, overlapMessage)
	case !j.established && !IsTrue(d, v1.Established):
		return w.release(ctx, "NeverEstablished", "resource was never established")
	case t == nil || t.Reason == "InstanceDeletionPending":
		won, err := w.tell(ctx, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
		if err != nil || !won {
			return err
		}
		j.nextPass = j.Now()
	case j.nextPass.IsZero():
		j.nextPass = j.Now().Add(j.passPause)
	}
	if err := j.remove(ctx, w); err != nil || j.left > 0 {
		return err
	}
	none, err := j.Instances.None(d.Spec.Group, d.Spec.Names.Plural)
	if err != nil {
		return err
	}
	// Some may have come since they were counted.
	return w.release(ctx, "InstanceDeletionCompleted", "removed all instances", none)
}

// remove deletes the objects when that is due, and counts what is left.
func (j *job) remove(ctx context.Context, w *statusWrite) error {
	select {
	case j.slots <- struct{}{}:
		defer func() { <-j.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	group, resource, before := w.d.Spec.Group, w.d.Spec.Names.Plural, j.left
	var err error
	if j.left, err = j.Instances.Count(ctx, group, resource); err != nil {
		return w.fail(ctx, "could not list instances: ", err)
	}
	if j.left > 0 && j.left < before {
		j.passPause = firstPass
		j.nextPass = j.Now().Add(j.passPause)
	}
	if j.left > 0 && !j.Now().Before(j.nextPass) {
		j.nextPass = j.Now().Add(j.passPause)
		j.passPause = min(2*j.passPause, lastPass)
		if err := j.Instances.Delete(ctx, group, resource); err != nil {
			return w.fail(ctx, "could not issue all deletes: ", err)
		}
		if j.left, err = j.Instances.Count(ctx, group, resource); err != nil {
			return w.fail(ctx, "could not list instances: ", err)
		}
	}
	if t := find(&w.d.Status, v1.Terminating); j.left > 0 && t.Reason == "InstanceDeletionInProgress" && w.now.Sub(t.LastTransitionTime.Time) > confirmWithin {
		_, err = w.tell(ctx, "InstanceDeletionCheck", "could not confirm zero CustomResources remaining: "+context.DeadlineExceeded.Error())
	}
	return err
}
