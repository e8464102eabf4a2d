package valuedict

const (
	// learnFrom is the divisor of a value's size above which its own bytes trigger a search for
	// sequences.
	learnFrom = 5
	// minSequence is the minimum size of a sequence in bytes.
	minSequence = 24
	// maxMisses is the number of values without a new sequence after which values are skipped.
	maxMisses = 32
	// maxPause is the maximum number of values skipped at a time.
	maxPause = 256
	// run is the number of values examined after a pause: values of one type often arrive together.
	run = 8
	// minRecent and maxRecent are the minimum and maximum size in bytes of the text of recent
	// values.
	minRecent = 16 << 10
	maxRecent = 256 << 10
	// maxSequence is the maximum size of a sequence in bytes.
	maxSequence = 4 << 10
	// recentPart is the divisor of the size of the text of recent values that limits the part of
	// one value. Otherwise a few large values would fill the text. The rest of such a value is
	// found in later values that are equal.
	recentPart = 8
)

// learner finds sequences: parts that several values share. The mutex of the Pool protects it.
type learner struct {
	recent *index // unmatched parts of recent values
	misses int    // values without a new sequence since the last one with a sequence
	wait   int64  // size of the last pause
	found  int    // bytes of sequences found since the last Compact
	idle   int    // number of calls of Compact since sequences were found
	left   int    // bytes of sequences that did not fit in the dictionary
}

// learn searches a value that compresses badly for sequences. It skips the value if another call
// is in progress.
func (p *Pool) learn(value []byte, all int64) {
	if p.pause.Add(-1) >= 0 || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	x := p.current.Load()
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
		found += p.search(value[m.own:start], all)
		m.advance(start, end, at)
	}
	found += p.search(value[m.own:], all)
	p.found += found
	p.pause.Store(0)
	switch {
	case found >= minSequence:
		p.misses = 0
		p.wait = 0
	case p.misses < maxMisses:
		p.misses++
	default:
		p.misses -= run
		p.wait = min(2*p.wait+1, maxPause)
		p.pause.Store(p.wait)
	}
}

// search searches the own bytes of a value for sequences that recent values contain too. It returns
// the number of bytes of new sequences.
func (p *Pool) search(own []byte, all int64) (found int) {
	if len(own) < minSequence {
		return 0
	}
	if p.recent == nil {
		p.forget(all)
	}
	m := p.recent.matches(own)
	for {
		start, end, at, ok := m.step()
		if !ok {
			break
		}
		if sequence := own[start:end]; len(sequence) >= minSequence {
			sequence = sequence[:min(len(sequence), maxSequence)]
			x := p.indexFor(len(sequence), all)
			if x != nil {
				x.add(sequence)
			}
			if x != nil || !p.crowded {
				found += len(sequence)
			}
		}
		m.advance(start, end, at)
	}
	if found < len(own)/2 {
		own = own[:min(len(own), len(p.recent.dict.text)/recentPart)]
		if p.recent.free() < len(own) {
			p.forget(all)
		}
		p.recent.add(own)
	}
	return found
}

// forget discards the text of recent values.
func (p *Pool) forget(all int64) {
	size := minRecent
	for size < maxRecent && all >= worthOf(2*size) {
		size *= 2
	}
	p.recent = newIndex(size, 1)
	p.idle = 0
}
