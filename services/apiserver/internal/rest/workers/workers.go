package workers

import (
	"runtime"
	"sync"
	"time"
)

const (
	// trimInterval is the interval of endIdle, which stops the workers that were idle throughout
	// it.
	trimInterval = 250 * time.Millisecond
	// maxIdle is the maximum number of idle workers. They wait for an event that goes to all
	// watchers of a resource.
	maxIdle = 1000
	// recentPerCPU is the maximum number of recently started functions per CPU that run at a time.
	// When all watchers get the same event, other goroutines wait behind at most that number in the
	// run queue of the Go runtime.
	recentPerCPU = 2
	// periodLength is how long a function runs before it counts as waiting for its client.
	periodLength = time.Millisecond
)

// Pool runs functions in goroutines that it reuses, because their stacks have already grown. It
// limits the number of functions that run at a time, except for those that wait for something.
// Queued functions are started in round-robin order of their users. The zero value is ready to use.
type Pool struct {
	mu     sync.Mutex // leaf lock
	queued userQueues
	// period is the number of the current period.
	period uint
	// recent counts the running functions that started in this period and in the one before, by the
	// parity of the period.
	recent [2]int
	// timerRuns reports whether a timer will call nextPeriod.
	timerRuns bool
	// idle holds the channels of idle workers. The worker that became idle last is the last one.
	idle []chan job
	// minIdle is the minimum number of idle workers since the last call of endIdle.
	minIdle int
	// trimming reports whether a timer will call endIdle.
	trimming bool
}

// job is a running function and the period in which it started.
type job struct {
	f      func()
	period uint
}

// userQueues holds queued functions by user.
type userQueues struct {
	byUser map[string][]func() // no empty queues
	order  []string            // the keys of byUser, in round-robin order
}

// push appends a function to the queue of a user.
func (l *userQueues) push(user string, work func()) {
	if l.byUser == nil {
		l.byUser = map[string][]func(){}
	}
	if len(l.byUser[user]) == 0 {
		l.order = append(l.order, user)
	}
	l.byUser[user] = append(l.byUser[user], work)
}

// pop removes and returns the next function, or nil.
func (l *userQueues) pop() func() {
	if len(l.order) == 0 {
		return nil
	}
	user := l.order[0]
	l.order = l.order[1:]
	queue := l.byUser[user]
	work := queue[0]
	queue[0] = nil
	queue = queue[1:]
	if len(queue) == 0 {
		delete(l.byUser, user)
		return work
	}
	l.byUser[user] = queue
	l.order = append(l.order, user)
	return work
}

// Run queues f for a user. A worker runs it soon.
func (w *Pool) Run(user string, work func()) {
	w.mu.Lock()
	w.queued.push(user, work)
	w.startQueued()
	w.mu.Unlock()
}

// startQueued starts queued functions within the limit. The caller holds mu.
func (w *Pool) startQueued() {
	for w.recent[0]+w.recent[1] < recentPerCPU*runtime.GOMAXPROCS(0) {
		work := w.queued.pop()
		if work == nil {
			return
		}
		next := w.newJob(work)
		last := len(w.idle) - 1
		if last < 0 {
			go w.runJobs(next)
			continue
		}
		worker := w.idle[last]
		w.idle[last] = nil
		w.idle = w.idle[:last]
		w.minIdle = min(w.minIdle, last)
		worker <- next // does not block: the channel has a free slot
	}
	if len(w.queued.order) > 0 && !w.timerRuns {
		w.timerRuns = true
		time.AfterFunc(periodLength, w.nextPeriod)
	}
}

// newJob counts f as started in the current period. The caller holds mu.
func (w *Pool) newJob(work func()) job {
	w.recent[w.period%2]++
	return job{f: work, period: w.period}
}

// nextPeriod starts another period. Functions started before the previous one count as waiting and
// no longer take part in the limit.
func (w *Pool) nextPeriod() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.period++
	w.recent[w.period%2] = 0
	w.timerRuns = false
	w.startQueued()
}

// runJobs runs a job and then further jobs, until the pool no longer needs the goroutine.
func (w *Pool) runJobs(task job) {
	next := make(chan job, 1)
	for {
		task.f()
		more, continues := w.finishJob(task, next)
		if !continues {
			return
		}
		if more.f != nil {
			task = more
			runtime.Gosched() // other goroutines have waited in the run queue
			continue
		}
		if more, continues = <-next; !continues {
			return
		}
		task = more
	}
}

// finishJob finishes a job and returns the next job of its worker. Without one, the worker waits on
// next, or ends if continues is false because enough workers are idle.
func (w *Pool) finishJob(task job, next chan job) (more job, continues bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.period-task.period < uint(len(w.recent)) {
		w.recent[task.period%2]--
		if work := w.queued.pop(); work != nil {
			return w.newJob(work), true
		}
	}
	if len(w.idle) >= maxIdle {
		return job{}, false
	}
	w.idle = append(w.idle, next)
	if !w.trimming {
		w.trimming = true
		time.AfterFunc(trimInterval, w.endIdle)
	}
	return job{}, true
}

// endIdle stops the workers that have been idle since its last call.
func (w *Pool) endIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, next := range w.idle[:w.minIdle] {
		close(next)
	}
	w.idle = append([]chan job{}, w.idle[w.minIdle:]...)
	w.minIdle = len(w.idle)
	w.trimming = len(w.idle) > 0
	if w.trimming {
		time.AfterFunc(trimInterval, w.endIdle)
	}
}
