package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"

	"binnacle/services/controllers/internal/garbagecollector/graph"
	"binnacle/services/controllers/internal/resources"
	"binnacle/services/controllers/internal/workers"
)

// Name is the name of the controller in --controllers.
const Name = "garbage-collector-controller"

// Component is the source of the controller's events.
const Component = "garbage-collector-controller"

const (
	// maxAbsent is the number of absent owners that are remembered.
	maxAbsent = 500
	// maxAbsentText is the maximum length in bytes of the name and the uid of an absent owner that
	// is remembered. References may contain any text.
	maxAbsentText = 512
)

// Recorder records warnings about objects. It does not block.
type Recorder interface {
	Warn(about corev1.ObjectReference, reason, message string)
}

// Config configures a Controller.
type Config struct {
	Client    metadata.Interface
	Resources *resources.Cache
	Events    Recorder
	Log       *slog.Logger
	// Queues provides the metrics of the work queues; may be nil.
	Queues workqueue.MetricsProvider
	// Workers is the number of workers of each queue.
	Workers int
}

// Controller is the garbage collector. It is used once.
type Controller struct {
	Config
	graph        *graph.Graph
	deleteQueue  workqueue.TypedRateLimitingInterface[task]
	orphanQueue  workqueue.TypedRateLimitingInterface[task]
	absentOwners *lru.Cache[graph.Identity, struct{}]
}

// New returns an idle controller. Its tasks must be those of the graph that it runs on.
func New(config Config) *Controller {
	queue := func(name string) workqueue.TypedRateLimitingInterface[task] {
		return workers.NewQueue(workers.QueueConfig[task]{
			Name: name, Metrics: config.Queues, Workers: config.Workers, Namespace: func(t task) string { return t.namespace },
		})
	}
	absent, err := lru.New[graph.Identity, struct{}](maxAbsent)
	if err != nil { // only for a size that is not positive
		panic(err)
	}
	return &Controller{
		Config:       config,
		deleteQueue:  queue("garbage_collector_attempt_to_delete"),
		orphanQueue:  queue("garbage_collector_attempt_to_orphan"),
		absentOwners: absent,
	}
}

// Tasks returns the receiver of the graph's work.
func (c *Controller) Tasks() graph.Tasks { return taskReceiver{c} }

// Run works on a graph until ctx ends. listed is closed once the graph contains all objects.
func (c *Controller) Run(ctx context.Context, ownerGraph *graph.Graph, listed <-chan struct{}) {
	defer c.deleteQueue.ShutDown()
	defer c.orphanQueue.ShutDown()
	select {
	case <-ctx.Done():
		return
	case <-listed:
	}
	c.graph = ownerGraph
	var group sync.WaitGroup
	group.Go(func() {
		workers.Run(ctx, workers.Config[task]{Name: Name, Queue: c.deleteQueue, Count: c.Workers, Log: c.Log, Sync: c.syncDelete})
	})
	group.Go(func() {
		workers.Run(ctx, workers.Config[task]{Name: Name, Queue: c.orphanQueue, Count: c.Workers, Log: c.Log, Sync: c.syncOrphan})
	})
	group.Wait()
}

// task is a node that needs work, and the namespace that the work counts for.
type task struct {
	*graph.Node
	namespace string
}

// taskReceiver implements graph.Tasks.
type taskReceiver struct{ controller *Controller }

func (t taskReceiver) Delete(n *graph.Node, namespace string) {
	t.controller.deleteQueue.Add(task{n, namespace})
}
func (t taskReceiver) Orphan(n *graph.Node, namespace string) {
	t.controller.orphanQueue.Add(task{n, namespace})
}
func (t taskReceiver) Absent(id graph.Identity) { t.controller.rememberAbsent(id) }

// InvalidNamespace reports a dependent in another namespace than its owner. The parts of a
// reference may have any length, and Events must not.
func (t taskReceiver) InvalidNamespace(dep, owner graph.Identity) {
	t.controller.Events.Warn(corev1.ObjectReference{
		APIVersion: dep.APIVersion, Kind: dep.Kind, Namespace: dep.Namespace, Name: dep.Name, UID: dep.UID,
	}, "OwnerRefInvalidNamespace",
		fmt.Sprintf("ownerRef [%.64s/%.64s, namespace: %s, name: %.253s, uid: %.128s] does not exist in namespace %q",
			owner.APIVersion, owner.Kind, owner.Namespace, owner.Name, owner.UID, dep.Namespace))
}

// Results of a task that need no retry.
var (
	errAbsent          = errors.New("the object does not exist")
	errNamespacedOwner = errors.New("cluster-scoped objects cannot refer to namespaced owners")
)

// errOtherCoordinates is a result that needs a retry.
var errOtherCoordinates = errors.New("references have other coordinates for the uid of an absent object")

// syncDelete handles a node of the queue of deletions.
func (c *Controller) syncDelete(ctx context.Context, t task) error {
	node := t.Node
	state := c.graph.State(node)
	if !state.Current {
		return nil // the object was removed meanwhile
	}
	err := c.attemptDelete(ctx, node, state)
	switch {
	case errors.Is(err, errAbsent), errors.Is(err, errNamespacedOwner):
		return nil
	case err != nil:
		return fmt.Errorf("%s %s/%s: %w", state.Kind, state.Namespace, state.Name, err)
	case !c.graph.State(node).Observed:
		// The object exists, but no watch has returned it yet. It may be deleted before one does.
		return fmt.Errorf("%s %s/%s: not observed yet", state.Kind, state.Namespace, state.Name)
	}
	return nil
}

// syncOrphan removes the references of a node's dependents, and then the finalizer of the node.
func (c *Controller) syncOrphan(ctx context.Context, t task) error {
	s := c.graph.State(t.Node)
	if err := c.orphanDependents(ctx, s.Identity, c.graph.Dependents(t.Node)); err != nil {
		return err
	}
	return c.removeFinalizer(ctx, s.Identity, finalizerOrphan)
}

// knownAbsent reports whether an object is remembered as absent.
func (c *Controller) knownAbsent(id graph.Identity) bool { return c.absentOwners.Contains(id) }

// rememberAbsent remembers an absent owner whose name and uid are not too long.
func (c *Controller) rememberAbsent(id graph.Identity) {
	if len(id.Name)+len(id.UID) <= maxAbsentText {
		c.absentOwners.Add(id, struct{}{})
	}
}

// handleAbsence handles the verified absence of the object of a node.
func (c *Controller) handleAbsence(id graph.Identity) error {
	if hasOtherIdentities := c.graph.RemoveVirtual(id); hasOtherIdentities {
		return errOtherCoordinates
	}
	return errAbsent
}

// ignoreNotFound returns nil for the absence of an object.
func ignoreNotFound(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}
