package watchcache

const (
	// warmEvents is how many changes ago an object must have been replaced for
	// its encodings to be given up. Watchers that are further behind make them
	// again.
	warmEvents = 256
	// minLogEvents stay in a log however old they are.
	minLogEvents = 100
)

// makeRoom forgets what is too old, or too much for one more record. The caller
// holds mu.
func (s *Store) makeRoom(now int64) {
	n := 0
	if most := s.cache.cfg.LogEvents; most > 0 {
		n = max(0, s.log.len()+1-most)
	}
	for s.log.len()-n > minLogEvents && now-s.log.at(s.log.first+uint64(n)).at > int64(s.cache.cfg.LogAge) {
		n++
	}
	s.forget(n)
}

// forget evicts the n oldest records. What they kept alive needs its encodings
// no more. The caller holds mu.
func (s *Store) forget(n int) {
	if n == 0 {
		return
	}
	bytes := s.log.bytes
	for range n {
		r := s.log.evict()
		s.cache.ring.retire(r.prev)
		s.retire(r)
		s.cache.pinned.leave(r.prev)
		s.charge(r)
	}
	s.cache.history.Add(s.log.bytes - bytes)
	s.lookForLost()
}

// lookForLost lets watchers be cut whose place was forgotten. The caller holds
// mu.
func (s *Store) lookForLost() {
	if len(s.watchers) > 0 && !s.forgot.Swap(true) {
		s.cache.historyForgotten()
	}
}

// leave drops the entries of an image that another one, which takes its place,
// does not show. The caller holds mu.
func (s *Store) leave(was, is *image) {
	was.entries.Scan(func(e *Entry) bool {
		if now, _ := is.get(e.Key()); now != e {
			s.cache.ring.retire(e)
			s.cache.pinned.leave(e)
		}
		return true
	})
}

// tidy does what is due without changes: it forgets what is too old and gives
// memory back.
func (s *Store) tidy(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(now)
	s.log.shrink()
	s.dropImages(func(k *keptImage) bool { return s.stale(k, now) })
	s.forgetLabels(now)
}

// cool gives up the encodings of what was replaced a while ago. The caller holds
// mu and has appended a record.
func (s *Store) cool() {
	if s.log.len() <= warmEvents {
		return
	}
	r := s.log.at(s.log.next - 1 - warmEvents)
	s.cache.ring.drop(r.prev)
	s.cache.ring.drop(r.tomb.Load())
	s.cache.ring.drop(r.early.Load())
}

// discard forgets the log of a store that is no longer used.
func (s *Store) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(s.log.len())
	s.log.shrink()
	s.dropImages(func(*keptImage) bool { return true })
}
