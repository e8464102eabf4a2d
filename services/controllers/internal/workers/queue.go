package workers

import (
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// minRetry and maxRetry bound the delay before a failed key is retried, as in Kubernetes. Unlike in
// Kubernetes, no limit applies to all retries together, because the failures of one namespace would
// then delay the retries of the others.
const (
	minRetry = 5 * time.Millisecond
	maxRetry = 1000 * time.Second
)

// QueueConfig configures a queue.
type QueueConfig[K comparable] struct {
	// Name is the label of the metrics of the queue.
	Name string
	// Metrics may be nil.
	Metrics workqueue.MetricsProvider
	// Workers is the number of workers that share the queue.
	Workers int
	// Namespace returns the namespace that the work on a key counts for.
	Namespace func(K) string
}

// NewQueue returns a queue that namespaces share. It serves the namespaces in turn. A namespace
// never occupies more workers than are free: the first namespace gets at most half of the workers,
// the second one a quarter, and so on. Many or slow keys of one namespace therefore cannot block
// the others.
func NewQueue[K comparable](queueConfig QueueConfig[K]) workqueue.TypedRateLimitingInterface[K] {
	order := &fairOrder[K]{
		namespace: queueConfig.Namespace, workers: max(1, queueConfig.Workers), waiting: map[string][]K{}, running: map[string]int{},
	}
	keys := &fairQueue[K]{order: order, TypedInterface: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
		Name: queueConfig.Name, MetricsProvider: queueConfig.Metrics, Queue: order,
	})}
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](minRetry, maxRetry),
		workqueue.TypedRateLimitingQueueConfig[K]{
			Name: queueConfig.Name, MetricsProvider: queueConfig.Metrics,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
				Name: queueConfig.Name, MetricsProvider: queueConfig.Metrics, Queue: keys,
			}),
		})
}

// fairQueue is a queue in the order of a fairOrder.
type fairQueue[K comparable] struct {
	workqueue.TypedInterface[K]
	order *fairOrder[K]
}

// Done implements workqueue.TypedInterface. It may allow several waiting keys to run, because the
// worker becomes free. Done itself starts none of them. The worker calls Get next and takes one.
// The others wait for a later call of Get, even if workers are idle.
func (q *fairQueue[K]) Done(key K) {
	q.order.finish(key)
	q.TypedInterface.Done(key)
}

// fairOrder implements workqueue.Queue, which is the order in which a work queue hands out its
// keys. It takes the namespaces of the waiting keys in turn. It skips a namespace that occupies at
// least as many workers as are free. The keys of one namespace stay in the order of Push.
type fairOrder[K comparable] struct {
	namespace func(K) string
	workers   int

	mu           sync.Mutex     // leaf lock
	waiting      map[string][]K // waiting keys by namespace; no list is empty
	waitingCount int            // number of keys in waiting
	ring         []string       // the namespaces of waiting, the next one first
	running      map[string]int // number of keys that workers process, by namespace; never zero
	busyWorkers  int            // sum of the numbers in running
}

// Touch implements workqueue.Queue. It does nothing: a key that is added again keeps its position.
func (o *fairOrder[K]) Touch(K) {}

// Push implements workqueue.Queue.
func (o *fairOrder[K]) Push(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	namespace := o.namespace(key)
	if len(o.waiting[namespace]) == 0 {
		o.ring = append(o.ring, namespace)
	}
	o.waiting[namespace] = append(o.waiting[namespace], key)
	o.waitingCount++
}

// Len implements workqueue.Queue. It returns the number of waiting keys, or 0 if none of them may
// run now. The work queue calls Pop only after Len has returned more than 0.
func (o *fairOrder[K]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.nextRunnable() < 0 {
		return 0
	}
	return o.waitingCount
}

// Pop implements workqueue.Queue. It removes the next key that may run, and counts it as running
// until finish. At least one key must be runnable.
func (o *fairOrder[K]) Pop() (key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.nextRunnable()
	namespace := o.ring[i]
	keys := o.waiting[namespace]
	key = keys[0]
	keys[0] = *new(K) // the array outlives the key
	o.ring = slices.Delete(o.ring, i, i+1)
	if keys = keys[1:]; len(keys) > 0 {
		o.waiting[namespace] = keys
		o.ring = append(o.ring, namespace)
	} else {
		delete(o.waiting, namespace)
	}
	o.waitingCount--
	o.running[namespace]++
	o.busyWorkers++
	return key
}

// nextRunnable returns the position in ring of the next namespace that may run a key, or -1. The
// caller holds mu.
func (o *fairOrder[K]) nextRunnable() int {
	for i, ns := range o.ring {
		if o.running[ns] < o.workers-o.busyWorkers {
			return i
		}
	}
	return -1
}

// finish records that a worker has processed a key from Pop.
func (o *fairOrder[K]) finish(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ns := o.namespace(key)
	if o.running[ns]--; o.running[ns] == 0 {
		delete(o.running, ns)
	}
	o.busyWorkers--
}
