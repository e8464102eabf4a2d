package resourcequota

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission"
)

// job is a request to charge to quotas, or a list of earlier charges to refund.
type job struct {
	request   *admission.Request
	evaluator *evaluator
	quotas    []string // names of the quotas that may be charged
	refunds   []charge // charges to undo

	// err and charged are the result. They are valid once done is closed.
	err     error
	charged []charge
	done    chan struct{}

	mu        sync.Mutex
	finished  bool
	abandoned bool
}

// abandon ends the wait for a job. If the job has finished, it returns its charges and true. The
// caller must then refund them.
func (j *job) abandon() (charges []charge, finished bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandoned = true
	return j.charged, j.finished
}

// isDone reports whether the job needs no more work: it has failed, or its request was abandoned.
func (j *job) isDone() bool {
	if j.err != nil {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.abandoned && j.request != nil
}

// finish ends the job and reports whether a caller still waits for it.
func (j *job) finish() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.finished = true
	close(j.done)
	return !j.abandoned
}

// batcher is the queue of a namespace's jobs. Its length is bounded by the number of requests in
// flight.
type batcher struct{ waiting []*job }

// enqueue appends a job to the queue of its namespace. The first job starts a goroutine that runs
// until the queue is empty.
func (p *Plugin) enqueue(namespace string, j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.batchers[namespace]
	if b == nil {
		b = &batcher{}
		p.batchers[namespace] = b
		go p.runBatches(namespace, b)
	}
	b.waiting = append(b.waiting, j)
}

// runBatches runs the queued jobs of a namespace in batches until the queue is empty.
func (p *Plugin) runBatches(namespace string, b *batcher) {
	for {
		p.mu.Lock()
		jobs := b.waiting
		b.waiting = nil
		if len(jobs) == 0 {
			delete(p.batchers, namespace)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.runBatch(namespace, jobs)
	}
}

// runBatch runs jobs with one write for each quota. It skips abandoned jobs, except for charges to
// undo.
func (p *Plugin) runBatch(namespace string, jobs []*job) {
	ctx, cancel := context.WithTimeout(context.Background(), chargeTimeout)
	defer cancel()
	byQuota := map[string][]*job{}
	for _, j := range jobs {
		for _, name := range j.quotas {
			byQuota[name] = append(byQuota[name], j)
		}
		for i := range j.refunds {
			byQuota[j.refunds[i].quota] = append(byQuota[j.refunds[i].quota], j)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byQuota)) {
		p.changeQuota(ctx, namespace, name, byQuota[name])
	}
	for _, j := range jobs {
		charges := j.charged
		if j.err != nil {
			j.charged = nil
		}
		waits := j.finish()
		if j.err != nil || !waits {
			p.refund(namespace, charges)
		}
	}
}

// changeQuota charges a quota for pending jobs, and undoes charges.
func (p *Plugin) changeQuota(ctx context.Context, namespace, name string, jobs []*job) {
	jobs = slices.DeleteFunc(slices.Clone(jobs), (*job).isDone)
	if len(jobs) == 0 {
		return
	}
	var attempt []charge // by job; recomputed after each conflict
	var errs []error
	revision, err := p.Quotas.Change(ctx, namespace, name, func(q *corev1.ResourceQuota) {
		attempt, errs = make([]charge, len(jobs)), make([]error, len(jobs))
		for i, j := range jobs {
			for k := range j.refunds {
				if j.refunds[k].quota == name {
					j.refunds[k].refund(q)
				}
			}
			if j.request != nil && !j.isDone() {
				attempt[i].amounts, errs[i] = j.charge(q)
				attempt[i].quota, attempt[i].uid = q.Name, string(q.UID)
			}
		}
		counted := recountTimes(q)
		for i := range attempt {
			attempt[i].recountTimes = counted
		}
	})
	if apierrors.IsNotFound(err) { // the quota is gone and limits nothing
		return
	}
	for i, j := range jobs {
		switch {
		case err != nil:
			j.err = err
		case errs[i] != nil:
			j.err = errs[i]
		case len(attempt[i].amounts) > 0:
			attempt[i].revision = revision
			j.charged = append(j.charged, attempt[i])
		}
	}
}

// charge charges a quota and returns the amounts.
func (j *job) charge(q *corev1.ResourceQuota) (amounts, error) {
	used, err := j.evaluator.Usage(j.request.Object)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	growth, _, err := j.evaluator.charges(j.request, q, used)
	delta := quota.FilterNames(growth, q.Status.Hard)
	if err != nil || len(delta) == 0 {
		return nil, err
	}
	before := q.Status.Used
	if err := addUsage(j.request, q, delta); err != nil {
		return nil, err
	}
	if j.request.DryRun {
		q.Status.Used = before
		return nil, nil
	}
	return delta, nil
}
