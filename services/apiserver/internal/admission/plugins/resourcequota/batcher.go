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

// job is a request to charge, or a list of charges to undo.
type job struct {
	request   *admission.Request
	evaluator *evaluator
	quotas    []string // names of the quotas that may be charged
	back      []charge

	// err and charged are the result. They are valid once done is closed.
	err     error
	charged []charge
	done    chan struct{}

	mu        sync.Mutex
	finished  bool
	abandoned bool
}

// abandon gives up waiting for a job. If the job has finished, its charges belong to the caller.
func (j *job) abandon() (charges []charge, over bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandoned = true
	return j.charged, j.finished
}

// over reports whether the job needs no more work: it has failed, or its request was abandoned.
func (j *job) over() bool {
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

// enter appends a job to the queue. The first job starts a goroutine that works until the queue is
// empty.
func (p *Plugin) enter(namespace string, j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.batchers[namespace]
	if l == nil {
		l = &batcher{}
		p.batchers[namespace] = l
		go p.work(namespace, l)
	}
	l.waiting = append(l.waiting, j)
}

func (p *Plugin) work(namespace string, l *batcher) {
	for {
		p.mu.Lock()
		jobs := l.waiting
		l.waiting = nil
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	byQuota := map[string][]*job{}
	for _, j := range jobs {
		for _, name := range j.quotas {
			byQuota[name] = append(byQuota[name], j)
		}
		for i := range j.back {
			byQuota[j.back[i].quota] = append(byQuota[j.back[i].quota], j)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byQuota)) {
		p.change(ctx, namespace, name, byQuota[name])
	}
	for _, j := range jobs {
		charges := j.charged
		if j.err != nil {
			j.charged = nil
		}
		if waits := j.finish(); j.err != nil || !waits {
			p.giveBack(namespace, charges)
		}
	}
}

// change charges a quota for pending jobs, and undoes charges.
func (p *Plugin) change(ctx context.Context, namespace, name string, jobs []*job) {
	jobs = slices.DeleteFunc(slices.Clone(jobs), (*job).over)
	if len(jobs) == 0 {
		return
	}
	var attempt []charge // by job; recomputed after each conflict
	var errs []error
	revision, err := p.Quotas.Change(ctx, namespace, name, func(q *corev1.ResourceQuota) {
		attempt, errs = make([]charge, len(jobs)), make([]error, len(jobs))
		for i, j := range jobs {
			for k := range j.back {
				if j.back[k].quota == name {
					j.back[k].giveBack(q)
				}
			}
			if j.request != nil && !j.over() {
				attempt[i].amounts, errs[i] = j.charge(q)
				attempt[i].quota, attempt[i].uid = q.Name, string(q.UID)
			}
		}
		counted := countedBy(q)
		for i := range attempt {
			attempt[i].counted = counted
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
	delta := quota.Only(growth, q.Status.Hard)
	if err != nil || len(delta) == 0 {
		return nil, err
	}
	before := q.Status.Used
	if err := charged(j.request, q, delta); err != nil {
		return nil, err
	}
	if j.request.DryRun {
		q.Status.Used = before
		return nil, nil
	}
	return delta, nil
}
