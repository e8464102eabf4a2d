package leaderelection

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

const (
	// relistInterval is how often all candidates are read, independent of notifications.
	relistInterval = time.Minute
	// evaluationDelay is the delay from a change to its evaluation, so that several changes of one
	// lease and its candidates need one evaluation.
	evaluationDelay = 50 * time.Millisecond
	// maxLogText is the maximum length in bytes of a client's text in a log line.
	maxLogText = 256
	// logBurst is the burst of log logBurst, logInterval the interval between further ones.
	logBurst    = 100
	logInterval = time.Second
)

// job is a unit of work: one candidate, one lease with its candidates, or, without a name, all
// candidates.
type job struct {
	resource string
	namespacedName
}

// worker does the work of one term. A changed candidate or lease is read, and the candidates of
// that lease are evaluated.
type worker struct {
	Config
	queue      workqueue.TypedDelayingInterface[job]
	logLimiter *rate.Limiter

	// Owned by the goroutine of run: the candidates of each lease, the lease of each candidate, and
	// the last logged error of each job.
	candidatesOf map[namespacedName]map[namespacedName]*candidate
	lease        map[namespacedName]namespacedName
	logged       map[job]string

	mu        sync.RWMutex
	contested map[namespacedName]bool
}

func newWorker(config Config) *worker {
	return &worker{
		Config:     config,
		queue:      workqueue.NewTypedDelayingQueue[job](),
		logLimiter: rate.NewLimiter(rate.Every(logInterval), logBurst),

		candidatesOf: map[namespacedName]map[namespacedName]*candidate{}, lease: map[namespacedName]namespacedName{}, logged: map[job]string{},
		contested: map[namespacedName]bool{},
	}
}

// enqueue queues a job.
func (c *worker) enqueue(j job) { c.queue.AddAfter(j, evaluationDelay) }

func (c *worker) isContested(at namespacedName) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.contested[at]
}

// run processes jobs one at a time, each when it is due, until ctx ends. A failed job is retried
// later, after other jobs.
func (c *worker) run(ctx context.Context) {
	defer c.queue.ShutDown()
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	c.queue.Add(job{resource: candidates})
	for {
		j, ended := c.queue.Get()
		if ended {
			return
		}
		next, err := c.process(ctx, j)
		c.queue.Done(j)
		if ctx.Err() != nil {
			return
		}
		c.logError(j, err)
		if err != nil && next.IsZero() {
			next = c.Now().Add(pingTimeout)
		}
		if !next.IsZero() {
			c.queue.AddAfter(j, max(next.Sub(c.Now()), evaluationDelay))
		}
	}
}

// process processes a job. It returns when to process it again at the latest, or the zero time.
func (c *worker) process(ctx context.Context, j job) (next time.Time, err error) {
	switch {
	case j.resource == leases:
		return c.step(ctx, j.namespacedName)
	case j.name == "":
		return c.Now().Add(relistInterval), c.readAll(ctx)
	}
	var one coordinationv1beta1.LeaseCandidate
	err = c.API.GetCached(ctx, j.candidate(), &one)
	if apierrors.IsNotFound(err) {
		c.removeCandidate(j.namespacedName)
		return time.Time{}, nil
	}
	if err == nil {
		c.setCandidate(&one)
	}
	return time.Time{}, err
}

// readAll reads all candidates: at the beginning of the term, and later those without a
// notification.
func (c *worker) readAll(ctx context.Context) error {
	var list coordinationv1beta1.LeaseCandidateList
	if err := c.API.ListCached(ctx, internalclient.Collection(group, candidateVersion, candidates, ""), nil, &list); err != nil {
		return err
	}
	there := make(map[namespacedName]bool, len(list.Items))
	for i := range list.Items {
		one := &list.Items[i]
		there[namespacedName{one.Namespace, one.Name}] = true
		c.setCandidate(one)
	}
	for at := range c.lease {
		if !there[at] {
			c.removeCandidate(at)
		}
	}
	return nil
}

// setCandidate records the current state of a candidate and queues its lease.
func (c *worker) setCandidate(one *coordinationv1beta1.LeaseCandidate) {
	at := namespacedName{one.Namespace, one.Name}
	lease := namespacedName{one.Namespace, one.Spec.LeaseName}
	was := c.candidatesOf[c.lease[at]][at]
	if c.lease[at] != lease { // a new candidate of the same name
		c.removeCandidate(at)
	}
	if c.candidatesOf[lease] == nil {
		c.candidatesOf[lease] = map[namespacedName]*candidate{}
		c.setContested(lease, true)
	}
	c.candidatesOf[lease][at], c.lease[at] = newCandidate(one, was, c.Now()), lease
	c.enqueue(job{leases, lease})
}

// removeCandidate removes a candidate.
func (c *worker) removeCandidate(at namespacedName) {
	lease, known := c.lease[at]
	if !known {
		return
	}
	delete(c.lease, at)
	delete(c.logged, job{candidates, at})
	delete(c.candidatesOf[lease], at)
	if len(c.candidatesOf[lease]) == 0 {
		delete(c.candidatesOf, lease)
		delete(c.logged, job{leases, lease})
		c.setContested(lease, false)
		return
	}
	c.enqueue(job{leases, lease})
}

func (c *worker) setContested(lease namespacedName, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is {
		c.contested[lease] = true
	} else {
		delete(c.contested, lease)
	}
}

// logError logs the error of a job, but not the same error twice in a row.
func (c *worker) logError(j job, err error) {
	if err == nil {
		delete(c.logged, j)
		return
	}
	text := truncated(err.Error())
	if c.logged[j] == text || !c.logLimiter.AllowN(c.Now(), 1) {
		return
	}
	c.logged[j] = text
	about := "all candidates"
	if j.name != "" {
		about = j.resource + " " + truncated(j.String())
	}
	c.Logger.Warn("failed to elect leaders; retrying", "of", about, "error", text)
}

// truncated returns the part of a client's text that a log line may contain.
func truncated(s string) string {
	if len(s) <= maxLogText {
		return s
	}
	n := maxLogText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s … (%d more bytes)", s[:n], len(s)-n)
}
