package watchcache

const (
	// warmEvents is how many changes ago an object must have been replaced for its encodings to be
	// dropped. Watchers that lag more encode again.
	warmEvents = 256
	// minLogEvents is how many records stay in a log regardless of their age.
	minLogEvents = 100
)

// makeRoom drops records that are too old, and one more if the log is full. The caller holds mu.
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

// forget drops the n oldest records. The versions that they kept alive lose their encodings. The
// caller holds mu.
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

// lookForLost schedules a check for watchers whose place was dropped. The caller holds mu.
func (s *Store) lookForLost() {
	if len(s.watchers) > 0 && !s.forgot.Swap(true) {
		s.cache.historyForgotten()
	}
}

// leave retires the entries of an image that its replacement does not contain. The caller holds mu.
func (s *Store) leave(was, is *image) {
	was.entries.Scan(func(e *Entry) bool {
		if now, _ := is.get(e.Key()); now != e {
			s.cache.ring.retire(e)
			s.cache.pinned.leave(e)
		}
		return true
	})
}

// tidy does the periodic work that needs no change: it drops old records and releases memory.
func (s *Store) tidy(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(now)
	s.log.shrink()
	s.dropImages(func(k *keptImage) bool { return s.stale(k, now) })
	s.forgetLabels(now)
}

// cool drops the encodings of versions that were replaced a while ago. The caller holds mu and has
// appended a record.
func (s *Store) cool() {
	if s.log.len() <= warmEvents {
		return
	}
	r := s.log.at(s.log.next - 1 - warmEvents)
	s.cache.ring.drop(r.prev)
	s.cache.ring.drop(r.tomb.Load())
	s.cache.ring.drop(r.early.Load())
}

// discard drops the log of a store that is no longer used.
func (s *Store) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(s.log.len())
	s.log.shrink()
	s.dropImages(func(*keptImage) bool { return true })
}
