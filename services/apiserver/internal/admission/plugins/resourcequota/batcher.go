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

// job is a unit of work of a batcher. It either charges a request to quotas, or refunds the charges
// of an earlier job.
type job struct {
	request   *admission.Request // nil for refunds
	evaluator *evaluator
	quotas    []string // names of the quotas to charge
	refunds   []charge // nil for a request

	// err and charged are the result. The caller may read them once done is closed.
	err     error
	charged []charge
	done    chan struct{}

	mu        sync.Mutex // protects finished and abandoned
	finished  bool       // the batcher has closed done
	abandoned bool       // the caller no longer waits
}

// abandon records that the caller no longer waits for the job. If the job has finished already,
// abandon returns its charges and true, and the caller must refund them. Otherwise the batcher
// refunds them.
func (j *job) abandon() (charges []charge, finished bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandoned = true
	return j.charged, j.finished
}

// needsNoWork reports whether the job has failed, or its caller has abandoned the request. Refunds
// are made even if the caller no longer waits.
func (j *job) needsNoWork() bool {
	if j.err != nil {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.abandoned && j.request != nil
}

// finish publishes the result of the job. It reports whether the caller still waits for it.
func (j *job) finish() (waiting bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.finished = true
	close(j.done)
	return !j.abandoned
}

// batcher queues the jobs of a namespace. Each job belongs to a request in flight, which bounds the
// length of the queue. Plugin.mu protects it.
type batcher struct{ queue []*job }

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
	b.queue = append(b.queue, j)
}

// runBatches runs the queued jobs of a namespace in batches until the queue is empty.
func (p *Plugin) runBatches(namespace string, b *batcher) {
	for {
		p.mu.Lock()
		jobs := b.queue
		b.queue = nil
		if len(jobs) == 0 {
			delete(p.batchers, namespace)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.runBatch(namespace, jobs)
	}
}

// runBatch runs jobs with one write for each quota. It then refunds the charges of jobs that failed
// or whose callers no longer wait.
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
		waiting := j.finish()
		if j.err != nil || !waiting {
			p.refund(namespace, charges)
		}
	}
}

// changeQuota applies all charges and refunds of jobs that concern one quota, and records the
// results in the jobs.
func (p *Plugin) changeQuota(ctx context.Context, namespace, name string, jobs []*job) {
	jobs = slices.DeleteFunc(slices.Clone(jobs), (*job).needsNoWork)
	if len(jobs) == 0 {
		return
	}
	// Quotas.Change calls the function again after a conflict, so the results are per attempt.
	var attempt []charge // by index of the job
	var errs []error     // by index of the job
	revision, err := p.Quotas.Change(ctx, namespace, name, func(resourceQuota *corev1.ResourceQuota) {
		attempt, errs = make([]charge, len(jobs)), make([]error, len(jobs))
		for i, j := range jobs {
			for k := range j.refunds {
				if j.refunds[k].quota == name {
					j.refunds[k].refund(resourceQuota)
				}
			}
			if j.request != nil && !j.needsNoWork() {
				attempt[i].amounts, errs[i] = j.charge(resourceQuota)
				attempt[i].quota, attempt[i].uid = resourceQuota.Name, string(resourceQuota.UID)
			}
		}
		counted := recountTimes(resourceQuota)
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

// charge adds the usage of the job's request to a quota and returns the added amounts. It returns
// an error if the quota would be exceeded. A dry run leaves the quota unchanged.
func (j *job) charge(resourceQuota *corev1.ResourceQuota) (amounts, error) {
	used, err := j.evaluator.Usage(j.request.Object)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	growth, _, err := j.evaluator.growthUnder(resourceQuota, j.request, used)
	delta := quota.FilterNames(growth, resourceQuota.Status.Hard)
	if err != nil || len(delta) == 0 {
		return nil, err
	}
	before := resourceQuota.Status.Used
	if err := addUsage(j.request, resourceQuota, delta); err != nil {
		return nil, err
	}
	if j.request.DryRun {
		resourceQuota.Status.Used = before
		return nil, nil
	}
	return delta, nil
}
