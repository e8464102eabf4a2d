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
	// relistInterval is the interval at which all candidates are read and each lease is evaluated,
	// even without notifications.
	relistInterval = time.Minute
	// evaluationDelay is the delay from a change to its evaluation. Several changes of one lease
	// and its candidates within that time cause a single evaluation.
	evaluationDelay = 50 * time.Millisecond
	// maxLogText is the maximum length in bytes of a client's text in a log line.
	maxLogText = 256
	// At most logBurst log lines are written at once, and one line per logInterval after that.
	logBurst    = 100
	logInterval = time.Second
)

// job is a unit of work. The resource leases means to evaluate the named lease. The resource
// candidates means to read the named candidate, or all candidates if the name is empty.
type job struct {
	resource string
	namespacedName
}

// worker elects leaders while this replica holds the controller's Lease. It tracks the candidates
// of each lease. When a candidate or a lease changes, it evaluates the lease; see evaluateLease.
type worker struct {
	Config
	queue      workqueue.TypedDelayingInterface[job]
	logLimiter *rate.Limiter

	// The following fields belong to the goroutine of run.
	candidatesOf map[namespacedName]map[namespacedName]*candidate // by lease, then by candidate
	leaseOf      map[namespacedName]namespacedName                // by candidate
	logged       map[job]string                                   // last logged error of each job

	mu        sync.RWMutex
	contested map[namespacedName]bool // leases with candidates; guarded by mu
}

func newWorker(config Config) *worker {
	return &worker{
		Config:     config,
		queue:      workqueue.NewTypedDelayingQueue[job](),
		logLimiter: rate.NewLimiter(rate.Every(logInterval), logBurst),

		candidatesOf: map[namespacedName]map[namespacedName]*candidate{},
		leaseOf:      map[namespacedName]namespacedName{},
		logged:       map[job]string{},
		contested:    map[namespacedName]bool{},
	}
}

// enqueue queues a job. It runs after evaluationDelay.
func (w *worker) enqueue(j job) { w.queue.AddAfter(j, evaluationDelay) }

// isContested reports whether a lease has candidates. It is safe for concurrent use.
func (w *worker) isContested(lease namespacedName) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.contested[lease]
}

// run processes queued jobs one at a time until ctx is canceled. A failed job is queued again.
func (w *worker) run(ctx context.Context) {
	defer w.queue.ShutDown()
	defer context.AfterFunc(ctx, w.queue.ShutDown)()
	w.queue.Add(job{resource: candidates})
	for {
		j, shutDown := w.queue.Get()
		if shutDown {
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

// process processes a job. It returns when to process the job again if no notification comes
// earlier, or the zero time if it need not be processed again.
func (w *worker) process(ctx context.Context, j job) (next time.Time, err error) {
	switch {
	case j.resource == leases:
		return w.evaluateLease(ctx, j.namespacedName)
	case j.name == "":
		return w.Now().Add(relistInterval), w.readAll(ctx)
	}
	var found coordinationv1beta1.LeaseCandidate
	err = w.API.GetCached(ctx, j.candidateRef(), &found)
	if apierrors.IsNotFound(err) {
		w.removeCandidate(j.namespacedName)
		return time.Time{}, nil
	}
	if err == nil {
		w.setCandidate(&found)
	}
	return time.Time{}, err
}

// readAll reads all candidates, in case a notification was missed.
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
	for name := range w.leaseOf {
		if !exists[name] {
			w.removeCandidate(name)
		}
	}
	return nil
}

// setCandidate records the state of a candidate that was read, and queues its lease for evaluation.
func (w *worker) setCandidate(leaseCandidate *coordinationv1beta1.LeaseCandidate) {
	name := namespacedName{leaseCandidate.Namespace, leaseCandidate.Name}
	lease := namespacedName{leaseCandidate.Namespace, leaseCandidate.Spec.LeaseName}
	previous := w.candidatesOf[w.leaseOf[name]][name]
	if w.leaseOf[name] != lease { // a new candidate, possibly with the name of an old one
		w.removeCandidate(name)
	}
	if w.candidatesOf[lease] == nil {
		w.candidatesOf[lease] = map[namespacedName]*candidate{}
		w.setContested(lease, true)
	}
	w.candidatesOf[lease][name] = newCandidate(leaseCandidate, previous, w.Now())
	w.leaseOf[name] = lease
	w.enqueue(job{resource: leases, namespacedName: lease})
}

// removeCandidate removes a candidate and queues its lease for evaluation if other candidates
// remain.
func (w *worker) removeCandidate(name namespacedName) {
	lease, known := w.leaseOf[name]
	if !known {
		return
	}
	delete(w.leaseOf, name)
	delete(w.logged, job{resource: candidates, namespacedName: name})
	delete(w.candidatesOf[lease], name)
	if len(w.candidatesOf[lease]) == 0 {
		delete(w.candidatesOf, lease)
		delete(w.logged, job{resource: leases, namespacedName: lease})
		w.setContested(lease, false)
		return
	}
	w.enqueue(job{resource: leases, namespacedName: lease})
}

// setContested records whether a lease has candidates, for isContested.
func (w *worker) setContested(lease namespacedName, contested bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if contested {
		w.contested[lease] = true
	} else {
		delete(w.contested, lease)
	}
}

// logError logs the error of a job unless it is the same as the last logged error of that job, or
// the rate of log lines is too high. A nil error resets the last error.
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

// truncated returns text, or its first maxLogText bytes with a note if it is longer. It does not split
// a UTF-8 character.
func truncated(text string) string {
	if len(text) <= maxLogText {
		return text
	}
	n := maxLogText
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s … (%d more bytes)", text[:n], len(text)-n)
}
