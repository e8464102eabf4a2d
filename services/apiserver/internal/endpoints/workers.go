package endpoints

import (
	"sync"
	"time"
)

const (
	// trimEvery is how often workers end that had nothing to do since the last time.
	trimEvery = 250 * time.Millisecond
	// mostIdle workers wait at a time, for what all watchers of a resource are told.
	mostIdle = 1000
)

// workers run functions at once, each in a goroutine, which is one that has run others before
// where there is one: its stack has grown already. Its zero value is ready.
type workers struct {
	mu       sync.Mutex    // a leaf
	idle     []chan func() // of each that waits, the last one to do so last
	least    int           // that were idle since they were trimmed
	trimming bool
}

// run has a worker run f.
func (w *workers) run(f func()) {
	w.mu.Lock()
	last := len(w.idle) - 1
	if last < 0 {
		w.mu.Unlock()
		go w.work(f)
		return
	}
	to := w.idle[last]
	w.idle[last] = nil
	w.idle = w.idle[:last]
	w.least = min(w.least, last)
	w.mu.Unlock()
	to <- f
}

func (w *workers) work(f func()) {
	next := make(chan func(), 1)
	for ok := true; ok; f, ok = <-next {
		f()
		f = nil
		if !w.rest(next) {
			return
		}
	}
}

// rest has next wait for something to do, unless enough do.
func (w *workers) rest(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.idle) >= mostIdle {
		return false
	}
	w.idle = append(w.idle, next)
	if !w.trimming {
		w.trimming = true
		time.AfterFunc(trimEvery, w.trim)
	}
	return true
}

// trim ends the workers that were not needed.
func (w *workers) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, next := range w.idle[:w.least] {
		close(next)
	}
	w.idle = append([]chan func(){}, w.idle[w.least:]...)
	w.least = len(w.idle)
	if w.trimming = len(w.idle) > 0; w.trimming {
		time.AfterFunc(trimEvery, w.trim)
	}
}
