package valuedict

const (
	// learnFrom is the divisor of a value's size above which its own bytes trigger a search for
	// phrases.
	learnFrom = 5
	// leastPhrase is the minimum size of a phrase in bytes.
	leastPhrase = 24
	// hope is the number of values without a new phrase after which values are skipped. mostPause
	// is the maximum number of values skipped at a time. run is how many values are then examined:
	// values of one type often arrive together.
	hope, mostPause, run = 32, 256, 8
	// leastHeard and mostHeard are the minimum and maximum size in bytes of the text of recent
	// values.
	leastHeard, mostHeard = 16 << 10, 256 << 10
	// mostPhrase is the maximum size of a phrase in bytes. heardPart is the divisor of the text of
	// recent values that limits the part of one value. Otherwise a few large values would fill it.
	// The rest of such values is found in later values that are equal.
	mostPhrase, heardPart = 4 << 10, 8
)

// learner finds phrases.
type learner struct {
	heard  *index // unmatched parts of recent values
	misses int    // values without a new phrase since the last one with a phrase
	wait   int64  // size of the last pause
	found  int    // bytes of phrases found since the last Tidy
	idle   int    // number of calls of Tidy since phrases were found
	left   int    // bytes of phrases that did not fit
}

// learn searches a value that packs badly for phrases. It skips the value if another call is in
// progress.
func (s *Shelf) learn(value []byte, all int64) {
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
		found += s.hear(value[m.own:start], all)
		m.took(start, end, at)
	}
	found += s.hear(value[m.own:], all)
	s.found += found
	switch s.pause.Store(0); {
	case found >= leastPhrase:
		s.misses, s.wait = 0, 0
	case s.misses < hope:
		s.misses++
	default:
		s.misses -= run
		s.wait = min(2*s.wait+1, mostPause)
		s.pause.Store(s.wait)
	}
}

// hear searches the own bytes of a value for phrases that recent values contain too. It returns the
// number of bytes of new phrases.
func (s *Shelf) hear(own []byte, all int64) (found int) {
	if len(own) < leastPhrase {
		return 0
	}
	if s.heard == nil {
		s.forget(all)
	}
	m := s.heard.matches(own)
	for {
		start, end, at, ok := m.step()
		if !ok {
			break
		}
		if phrase := own[start:end]; len(phrase) >= leastPhrase {
			phrase = phrase[:min(len(phrase), mostPhrase)]
			x := s.turn(len(phrase), all)
			if x != nil {
				x.add(phrase)
			}
			if x != nil || !s.crowded {
				found += len(phrase)
			}
		}
		m.took(start, end, at)
	}
	if found < len(own)/2 {
		own = own[:min(len(own), len(s.heard.book.text)/heardPart)]
		if s.heard.room() < len(own) {
			s.forget(all)
		}
		s.heard.add(own)
	}
	return found
}

// forget discards the text of recent values.
func (s *Shelf) forget(all int64) {
	size := leastHeard
	for size < mostHeard && all >= worthOf(2*size) {
		size *= 2
	}
	s.heard, s.idle = newIndex(size, 1), 0
}
