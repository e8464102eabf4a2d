package valuedict

const (
	// learnFrom is the divisor of a value's size above which its own bytes trigger a search for
	// phrases.
	learnFrom = 5
	// minPhrase is the minimum size of a phrase in bytes.
	minPhrase = 24
	// maxMisses is the number of values without a new phrase after which values are skipped.
	// maxPause is the maximum number of values skipped at a time. run is how many values are then
	// examined: values of one type often arrive together.
	maxMisses, maxPause, run = 32, 256, 8
	// minRecent and maxRecent are the minimum and maximum size in bytes of the text of recent
	// values.
	minRecent, maxRecent = 16 << 10, 256 << 10
	// maxPhrase is the maximum size of a phrase in bytes. recentPart is the divisor of the text of
	// recent values that limits the part of one value. Otherwise a few large values would fill it.
	// The rest of such values is found in later values that are equal.
	maxPhrase, recentPart = 4 << 10, 8
)

// learner finds phrases.
type learner struct {
	recent *index // unmatched parts of recent values
	misses int    // values without a new phrase since the last one with a phrase
	wait   int64  // size of the last pause
	found  int    // bytes of phrases found since the last Compact
	idle   int    // number of calls of Compact since phrases were found
	left   int    // bytes of phrases that did not fit
}

// learn searches a value that packs badly for phrases. It skips the value if another call is in
// progress.
func (s *Pool) learn(value []byte, all int64) {
	if s.pause.Add(-1) >= 0 || !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	x := s.current.Load()
	if x == nil {
		return
	}
	found := 0
	m := x.matches(value)
	for {
		start, end, at, ok := m.step()
		if !ok {
			break
		}
		found += s.search(value[m.own:start], all)
		m.advance(start, end, at)
	}
	found += s.search(value[m.own:], all)
	s.found += found
	s.pause.Store(0)
	switch {
	case found >= minPhrase:
		s.misses, s.wait = 0, 0
	case s.misses < maxMisses:
		s.misses++
	default:
		s.misses -= run
		s.wait = min(2*s.wait+1, maxPause)
		s.pause.Store(s.wait)
	}
}

// search searches the own bytes of a value for phrases that recent values contain too. It returns
// the number of bytes of new phrases.
func (s *Pool) search(own []byte, all int64) (found int) {
	if len(own) < minPhrase {
		return 0
	}
	if s.recent == nil {
		s.forget(all)
	}
	m := s.recent.matches(own)
	for {
		start, end, at, ok := m.step()
		if !ok {
			break
		}
		if phrase := own[start:end]; len(phrase) >= minPhrase {
			phrase = phrase[:min(len(phrase), maxPhrase)]
			x := s.indexFor(len(phrase), all)
			if x != nil {
				x.add(phrase)
			}
			if x != nil || !s.crowded {
				found += len(phrase)
			}
		}
		m.advance(start, end, at)
	}
	if found < len(own)/2 {
		own = own[:min(len(own), len(s.recent.dict.text)/recentPart)]
		if s.recent.free() < len(own) {
			s.forget(all)
		}
		s.recent.add(own)
	}
	return found
}

// forget discards the text of recent values.
func (s *Pool) forget(all int64) {
	size := minRecent
	for size < maxRecent && all >= worthOf(2*size) {
		size *= 2
	}
	s.recent, s.idle = newIndex(size, 1), 0
}
