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
	// logBurst is the maximum burst of log lines. logInterval is the interval between further lines.
	logBurst    = 100
	logInterval = time.Second
)

// job is a unit of work: one candidate, one lease with its candidates, or, without a name, all
// candidates.
type job struct {
	resource string
	namespacedName
}

// worker elects leaders while this replica holds the Lease. When a candidate or lease changes, the
// worker reads it and evaluates the lease and its candidates.
type worker struct {
	Config
	queue      workqueue.TypedDelayingInterface[job]
	logLimiter *rate.Limiter

	// The following fields belong to the goroutine of run.
	candidatesOf map[namespacedName]map[namespacedName]*candidate // by lease, then by candidate
	lease        map[namespacedName]namespacedName                // lease of each candidate
	logged       map[job]string                                   // last logged error of each job

	mu        sync.RWMutex
	contested map[namespacedName]bool // leases with candidates; guarded by mu
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
func (w *worker) enqueue(j job) { w.queue.AddAfter(j, evaluationDelay) }

func (w *worker) isContested(lease namespacedName) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.contested[lease]
}

// run processes jobs one at a time, each when it is due, until ctx ends. A failed job is retried
// later, after other jobs.
func (w *worker) run(ctx context.Context) {
	defer w.queue.ShutDown()
	defer context.AfterFunc(ctx, w.queue.ShutDown)()
	w.queue.Add(job{resource: candidates})
	for {
		j, ended := w.queue.Get()
		if ended {
			return
		}
		next, err := w.process(ctx, j)
		w.queue.Done(j)
		if ctx.Err() != nil {
			return
		}
		w.logError(j, err)
		if err != nil && next.IsZero() {
			next = w.Now().Add(pingTimeout)
		}
		if !next.IsZero() {
			w.queue.AddAfter(j, max(next.Sub(w.Now()), evaluationDelay))
		}
	}
}

// process processes a job. It returns when to process it again at the latest, or the zero time.
func (w *worker) process(ctx context.Context, j job) (next time.Time, err error) {
	switch {
	case j.resource == leases:
		return w.step(ctx, j.namespacedName)
	case j.name == "":
		return w.Now().Add(relistInterval), w.readAll(ctx)
	}
	var found coordinationv1beta1.LeaseCandidate
	err = w.API.GetCached(ctx, j.candidate(), &found)
	if apierrors.IsNotFound(err) {
		w.removeCandidate(j.namespacedName)
		return time.Time{}, nil
	}
	if err == nil {
		w.setCandidate(&found)
	}
	return time.Time{}, err
}

// readAll reads all candidates, including those whose notification was missed.
func (w *worker) readAll(ctx context.Context) error {
	var list coordinationv1beta1.LeaseCandidateList
	if err := w.API.ListCached(ctx, internalclient.Collection(group, candidateVersion, candidates, ""), nil, &list); err != nil {
		return err
	}
	exists := make(map[namespacedName]bool, len(list.Items))
	for i := range list.Items {
		c := &list.Items[i]
		exists[namespacedName{c.Namespace, c.Name}] = true
		w.setCandidate(c)
	}
	for name := range w.lease {
		if !exists[name] {
			w.removeCandidate(name)
		}
	}
	return nil
}

// setCandidate records the current state of a candidate and queues its lease.
func (w *worker) setCandidate(c *coordinationv1beta1.LeaseCandidate) {
	name := namespacedName{c.Namespace, c.Name}
	lease := namespacedName{c.Namespace, c.Spec.LeaseName}
	previous := w.candidatesOf[w.lease[name]][name]
	if w.lease[name] != lease { // a new candidate of the same name
		w.removeCandidate(name)
	}
	if w.candidatesOf[lease] == nil {
		w.candidatesOf[lease] = map[namespacedName]*candidate{}
		w.setContested(lease, true)
	}
	w.candidatesOf[lease][name], w.lease[name] = newCandidate(c, previous, w.Now()), lease
	w.enqueue(job{leases, lease})
}

// removeCandidate removes a candidate.
func (w *worker) removeCandidate(name namespacedName) {
	lease, known := w.lease[name]
	if !known {
		return
	}
	delete(w.lease, name)
	delete(w.logged, job{candidates, name})
	delete(w.candidatesOf[lease], name)
	if len(w.candidatesOf[lease]) == 0 {
		delete(w.candidatesOf, lease)
		delete(w.logged, job{leases, lease})
		w.setContested(lease, false)
		return
	}
	w.enqueue(job{leases, lease})
}

func (w *worker) setContested(lease namespacedName, contested bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if contested {
		w.contested[lease] = true
	} else {
		delete(w.contested, lease)
	}
}

// logError logs the error of a job, but not the same error twice in a row.
func (w *worker) logError(j job, err error) {
	if err == nil {
		delete(w.logged, j)
		return
	}
	text := truncated(err.Error())
	if w.logged[j] == text || !w.logLimiter.AllowN(w.Now(), 1) {
		return
	}
	w.logged[j] = text
	subject := "all candidates"
	if j.name != "" {
		subject = j.resource + " " + truncated(j.String())
	}
	w.Logger.Warn("failed to elect leaders; retrying", "of", subject, "error", text)
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
