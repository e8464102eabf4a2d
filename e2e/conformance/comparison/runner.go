package comparison

import (
	"context"
	"iter"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// equalTimeout limits how long a step is repeated until the controllers of both servers have caught
// up.
const equalTimeout = 3 * time.Second

// Runner runs scenarios on both servers. It may be used concurrently.
type Runner struct {
	Reference, Product *Server
	Found              *Groups
	// Reviews is the webhook of scenarios whose admission reviews are compared; nil compares none.
	Reviews *Reviews
	// Cleanup returns the requests that follow a scenario on both servers.
	Cleanup func(c *Scenario) []Step
	// exclusive is locked for reading while a scenario runs, and for writing while one with shared
	// objects does.
	exclusive sync.RWMutex
	sent      atomic.Int64
}

// RunAll runs scenarios concurrently until all have ended or the context is done.
func (p *Runner) RunAll(ctx context.Context, workers int, scenarios iter.Seq[*Scenario]) {
	waiting := make(chan *Scenario)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c := range waiting {
				p.run(ctx, c)
			}
		})
	}
	for c := range scenarios {
		if ctx.Err() != nil {
			break
		}
		waiting <- c
	}
	close(waiting)
	wg.Wait()
}

// run runs a scenario until its last step or until the context is done.
func (p *Runner) run(ctx context.Context, c *Scenario) {
	if c.Shared {
		p.exclusive.Lock()
		defer p.exclusive.Unlock()
	} else {
		p.exclusive.RLock()
		defer p.exclusive.RUnlock()
	}
	reference := newSession(p.Reference, c.Namespace)
	product := newSession(p.Product, c.Namespace)
	reviewed := c.Reviewed && p.Reviews != nil
	if reviewed {
		defer p.Reviews.stop(reference, product)
	}
	for i, s := range c.Steps {
		if ctx.Err() != nil {
			return
		}
		if reviewed && i == len(NamespaceSteps()) { // the namespace exists
			p.Reviews.start(reference, product)
		}
		start := time.Now()
		want, got := Exchange(reference, product, s)
		p.sent.Add(1)
		if unsaved(s, reference) != unsaved(s, product) { // a consequence of a difference before
			continue
		}
		differences := compare(want, got)
		for (s.RetryUntilEqual || s.readsCache()) && len(differences) > 0 && time.Since(start) < equalTimeout {
			<-time.After(pollInterval)
			want, got = Exchange(reference, product, s)
			differences = compare(want, got)
		}
		if reviewed {
			differences = append(differences, p.Reviews.compare(reference, product)...)
		}
		for _, d := range differences {
			p.Found.add(finding{difference: d, scenario: c, step: i})
		}
		if s.changes() && (want.Status < http.StatusMultipleChoices) != (got.Status < http.StatusMultipleChoices) {
			break // the states of the servers differ from now on
		}
	}
	for _, s := range p.Cleanup(c) {
		Exchange(reference, product, s)
	}
}

// Sent returns the number of requests to each server.
func (p *Runner) Sent() int64 { return p.sent.Load() }

// variables matches the variables in a path.
var variables = regexp.MustCompile(`\{[a-z][A-Za-z0-9]*\}`)

// unsaved reports whether the path of a step has a variable that no response set.
func unsaved(s Step, session *Session) bool {
	return variables.MatchString(expand(s.Path, session.Vars))
}
