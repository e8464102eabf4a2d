package phrases

const (
	// learnFrom: a value of which more than one in so many bytes is its own is looked at.
	learnFrom = 5
	// leastPhrase is the least size of a phrase.
	leastPhrase = 24
	// hope is after how many values in which nothing was found others are left out, mostPause how
	// many at most, and run how many are looked at then: those of one sort come together.
	hope, mostPause, run = 32, 256, 8
	// leastHeard and mostHeard are the sizes of the text of what values had of their own lately.
	leastHeard, mostHeard = 16 << 10, 256 << 10
	// mostPhrase is how much of what is in two values becomes a phrase at once, and heardPart which
	// part of that text one value takes: few that are large would fill it else. More of them is
	// found in others that are the same.
	mostPhrase, heardPart = 4 << 10, 8
)

// learner finds phrases.
type learner struct {
	heard  *index // what values had of their own lately
	misses int    // values in which nothing was found since something was
	wait   int64  // how many were left out last
	found  int    // bytes of phrases since Tidy
	idle   int    // how often Tidy came since some were
	left   int    // bytes of phrases for which there was no room
}

// learn looks for phrases in a value that packs badly, unless others are at it.
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

// hear looks for what a value has of its own among what others had, and returns how many bytes
// are phrases from now on.
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

// forget begins anew with what values have of their own.
func (s *Shelf) forget(all int64) {
	size := leastHeard
	for size < mostHeard && all >= worthOf(2*size) {
		size *= 2
	}
	s.heard, s.idle = newIndex(size, 1), 0
}
