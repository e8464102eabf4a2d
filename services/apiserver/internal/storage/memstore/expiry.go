package memstore

import (
	"container/heap"
	"time"
)

// expiryQueue holds the versions that expire, the next one first, and the timer for it.
type expiryQueue struct {
	versions versionHeap
	timer    *time.Timer
	closed   bool
}

// add queues a version. expire runs when the next version of the queue is due.
func (e *expiryQueue) add(v *version, expire func()) {
	if e.closed {
		return
	}
	heap.Push(&e.versions, v)
	if e.versions[0] == v {
		e.resetTimer(expire)
	}
}

// resetTimer sets the timer to the expiry of the next version.
func (e *expiryQueue) resetTimer(expire func()) {
	wait := time.Until(e.versions[0].expires)
	if e.timer == nil {
		e.timer = time.AfterFunc(wait, expire)
		return
	}
	e.timer.Reset(wait)
}

// close stops the timer. Later versions are not expired.
func (e *expiryQueue) close() {
	e.closed = true
	e.versions = nil
	if e.timer != nil {
		e.timer.Stop()
	}
}

// expireDue deletes the values that are due.
func (s *Store) expireDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.expiry.versions) > 0 && !s.expiry.versions[0].expires.After(now) {
		due := heap.Pop(&s.expiry.versions).(*version)
		if current, _ := s.keys.Get(due.Key); current == due {
			s.removeKey(due.Key)
		}
	}
	if len(s.expiry.versions) > 0 {
		s.expiry.resetTimer(s.expireDue)
	}
}

// versionHeap implements heap.Interface.
type versionHeap []*version

func (q versionHeap) Len() int           { return len(q) }
func (q versionHeap) Less(i, j int) bool { return q[i].expires.Before(q[j].expires) }
func (q versionHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *versionHeap) Push(v any)        { *q = append(*q, v.(*version)) }

func (q *versionHeap) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}
