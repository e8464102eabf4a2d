package workers

import (
	"runtime"
	"sync"
	"time"
)

const (
	// trimEvery is the interval at which workers that were idle throughout it end.
	trimEvery = 250 * time.Millisecond
	// mostIdle is the maximum number of idle workers. They wait for an event that goes to all
	// watchers of a resource.
	mostIdle = 1000
	// freshPerCPU is how many recently started functions per CPU run at a time. When all watchers
	// get the same event, other goroutines wait behind at most that many in the run queue of the Go
	// runtime.
	freshPerCPU = 2
	// lately is how long a function runs before it counts as waiting for its client.
	lately = time.Millisecond
)

// Pool runs functions in goroutines that it reuses, because their stacks have already grown. It
// limits the number of functions that run at a time, except for those that wait for something.
// Queued functions are started in round-robin order of their users. The zero value is ready to use.
type Pool struct {
	mu       sync.Mutex // leaf lock
	waiting  lines
	tick     uint   // number of the current period
	fresh    [2]int // functions started in this period and in the one before that still run, by parity of the period
	ticking  bool
	idle     []chan job // of each idle worker, the last one to become idle last
	least    int        // minimum of idle workers since the last trim
	trimming bool
}

// job is a running function and the period in which it started.
type job struct {
	f     func()
	began uint
}

// lines holds queued functions by user.
type lines struct {
	of    map[string][]func() // no empty queues
	order []string            // the keys of of, in round-robin order
}

func (l *lines) add(user string, f func()) {
	if l.of == nil {
		l.of = map[string][]func(){}
	}
	if len(l.of[user]) == 0 {
		l.order = append(l.order, user)
	}
	l.of[user] = append(l.of[user], f)
}

// next removes and returns the next function, or nil.
func (l *lines) next() func() {
	if len(l.order) == 0 {
		return nil
	}
	user := l.order[0]
	l.order = l.order[1:]
	line := l.of[user]
	f := line[0]
	line[0] = nil
	line = line[1:]
	if len(line) == 0 {
		delete(l.of, user)
		return f
	}
	l.of[user], l.order = line, append(l.order, user)
	return f
}

// Run queues f for a user. A worker runs it soon.
func (w *Pool) Run(user string, f func()) {
	w.mu.Lock()
	w.waiting.add(user, f)
	w.begin()
	w.mu.Unlock()
}

// begin starts queued functions within the limit. The caller holds mu.
func (w *Pool) begin() {
	for w.fresh[0]+w.fresh[1] < freshPerCPU*runtime.GOMAXPROCS(0) {
		f := w.waiting.next()
		if f == nil {
			return
		}
		j := w.start(f)
		last := len(w.idle) - 1
		if last < 0 {
			go w.work(j)
			continue
		}
		to := w.idle[last]
		w.idle[last] = nil
		w.idle = w.idle[:last]
		w.least = min(w.least, last)
		to <- j // does not block: the channel has a free slot
	}
	if len(w.waiting.order) > 0 && !w.ticking {
		w.ticking = true
		time.AfterFunc(lately, w.pass)
	}
}

// start counts f as started. The caller holds mu.
func (w *Pool) start(f func()) job {
	w.fresh[w.tick%2]++
	return job{f, w.tick}
}

// pass begins another period. Functions started before the previous one count as waiting and no
// longer take part in the limit.
func (w *Pool) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick++
	w.fresh[w.tick%2] = 0
	w.ticking = false
	w.begin()
}

// work runs a job and then further jobs, until the pool needs the goroutine no more.
func (w *Pool) work(j job) {
	next := make(chan job, 1)
	for {
		j.f()
		more, continues := w.done(j, next)
		if !continues {
			return
		}
		if more.f != nil {
			j = more
			runtime.Gosched() // other goroutines have waited in the run queue
			continue
		}
		if more, continues = <-next; !continues {
			return
		}
		j = more
	}
}

// done ends a job and returns the next job of its worker. Without one, the worker waits on next, or
// ends if continues is false because enough workers are idle.
func (w *Pool) done(j job, next chan job) (more job, continues bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tick-j.began < uint(len(w.fresh)) {
		w.fresh[j.began%2]--
		if f := w.waiting.next(); f != nil {
			return w.start(f), true
		}
	}
	if len(w.idle) >= mostIdle {
		return job{}, false
	}
	w.idle = append(w.idle, next)
	if !w.trimming {
		w.trimming = true
		time.AfterFunc(trimEvery, w.trim)
	}
	return job{}, true
}

// trim ends the workers that have been idle since the last trim.
func (w *Pool) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, next := range w.idle[:w.least] {
		close(next)
	}
	w.idle = append([]chan job{}, w.idle[w.least:]...)
	w.least = len(w.idle)
	w.trimming = len(w.idle) > 0
	if w.trimming {
		time.AfterFunc(trimEvery, w.trim)
	}
}
