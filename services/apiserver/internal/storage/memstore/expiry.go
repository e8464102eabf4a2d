package memstore

import (
	"container/heap"
	"time"
)

// expiry holds the versions that expire, the next one first, and the timer for it.
type expiry struct {
	queue  expiring
	timer  *time.Timer
	closed bool
}

// add queues a version. expire runs when the next version of the queue is due.
func (e *expiry) add(v *version, expire func()) {
	if e.closed {
		return
	}
	heap.Push(&e.queue, v)
	if e.queue[0] == v {
		e.schedule(expire)
	}
}

func (e *expiry) schedule(expire func()) {
	wait := time.Until(e.queue[0].expires)
	if e.timer == nil {
		e.timer = time.AfterFunc(wait, expire)
		return
	}
	e.timer.Reset(wait)
}

func (e *expiry) close() {
	e.closed = true
	e.queue = nil
	if e.timer != nil {
		e.timer.Stop()
	}
}

// expire deletes the values that are due.
func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.expiry.queue) > 0 && !s.expiry.queue[0].expires.After(now) {
		due := heap.Pop(&s.expiry.queue).(*version)
		if current, _ := s.keys.Get(due.Key); current == due {
			s.remove(due.Key)
		}
	}
	if len(s.expiry.queue) > 0 {
		s.expiry.schedule(s.expire)
	}
}

// expiring implements heap.Interface.
type expiring []*version

func (q expiring) Len() int           { return len(q) }
func (q expiring) Less(i, j int) bool { return q[i].expires.Before(q[j].expires) }
func (q expiring) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *expiring) Push(v any)        { *q = append(*q, v.(*version)) }

func (q *expiring) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}
