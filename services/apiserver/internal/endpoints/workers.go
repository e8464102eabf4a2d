package endpoints

import (
	"runtime"
	"sync"
	"time"
)

const (
	// trimEvery is how often workers end that had nothing to do since the last time.
	trimEvery = 250 * time.Millisecond
	// mostIdle workers wait at a time, for what all watchers of a resource are told.
	mostIdle = 1000
	// freshPerCPU is how many functions of those that began lately run at a time: when all watchers
	// are told the same, whatever else there is to do stands behind that many in Go's queue.
	freshPerCPU = 2
	// lately is how long a function runs before it counts as one that waits for its client.
	lately = time.Millisecond
)

// workers run functions, each in a goroutine, which is one that has run others before
// where there is one: its stack has grown already. Few run at a time, but for those that
// wait for something; the users whose functions wait for that take turns. Its zero value is ready.
type workers struct {
	mu       sync.Mutex // a leaf
	waiting  lines
	tick     uint   // of the time
	fresh    [2]int // how many began in this tick and in the one before, and run; by the parity of the tick
	ticking  bool
	idle     []chan job // of each worker that waits, the last one to do so last
	least    int        // that were idle since they were trimmed
	trimming bool
}

// job is a function that runs, with the tick in which it began.
type job struct {
	f     func()
	began uint
}

// lines are functions that wait, by user.
type lines struct {
	of    map[string][]func() // none is empty
	order []string            // the keys of of, the next one first
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

// next is that of the user whose turn it is; nil for none.
func (l *lines) next() func() {
	if len(l.order) == 0 {
		return nil
	}
	user := l.order[0]
	l.order = l.order[1:]
	line := l.of[user]
	f := line[0]
	line[0] = nil
	if line = line[1:]; len(line) == 0 {
		delete(l.of, user)
		return f
	}
	l.of[user], l.order = line, append(l.order, user)
	return f
}

// run has a worker run f for a user, soon.
func (w *workers) run(user string, f func()) {
	w.mu.Lock()
	w.waiting.add(user, f)
	w.begin()
	w.mu.Unlock()
}

// begin has workers do what waits, as far as there is room. The caller holds mu.
func (w *workers) begin() {
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
		to <- j // has room
	}
	if len(w.waiting.order) > 0 && !w.ticking {
		w.ticking = true
		time.AfterFunc(lately, w.pass)
	}
}

// start counts a function that runs from now on. The caller holds mu.
func (w *workers) start(f func()) job {
	w.fresh[w.tick%2]++
	return job{f, w.tick}
}

// pass begins another tick: what runs since the one before that waits for something, and keeps
// nobody from running.
func (w *workers) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick++
	w.fresh[w.tick%2] = 0
	w.ticking = false
	w.begin()
}

func (w *workers) work(j job) {
	next := make(chan job, 1)
	for {
		j.f()
		more, goesOn := w.done(j, next)
		if !goesOn {
			return
		}
		if more.f != nil {
			j = more
			runtime.Gosched() // others have waited since
			continue
		}
		if more, goesOn = <-next; !goesOn {
			return
		}
		j = more
	}
}

// done ends a job, and returns the one that its worker does next. Without one, next waits for
// something to do, unless enough do.
func (w *workers) done(j job, next chan job) (more job, goesOn bool) {
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

// trim ends the workers that were not needed.
func (w *workers) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, next := range w.idle[:w.least] {
		close(next)
	}
	w.idle = append([]chan job{}, w.idle[w.least:]...)
	w.least = len(w.idle)
	if w.trimming = len(w.idle) > 0; w.trimming {
		time.AfterFunc(trimEvery, w.trim)
	}
}
