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
	// valuesAfterPause is the number of values examined after a pause: values of one type often
	// arrive together.
	valuesAfterPause = 8
	// minRecent and maxRecent are the minimum and maximum size in bytes of the text of recent
	// values.
	minRecent = 16 << 10
	maxRecent = 256 << 10
	// maxSequence is the maximum size of a sequence in bytes.
	maxSequence = 4 << 10
	// recentPart is a divisor of the size of the text of recent values. The quotient is the maximum
	// part of one value in the text. Otherwise a few large values would fill the text. Later equal
	// values contribute the rest.
	recentPart = 8
)

// learner finds sequences: parts that several values share. The mutex of the Pool protects it.
type learner struct {
	recent          *index // unmatched parts of recent values
	misses          int    // values without a new sequence since the last one with a sequence
	lastPause       int64  // size of the last pause
	found           int    // bytes of sequences found since the last Compact
	idleCompactions int    // number of calls of Compact since sequences were found
	leftOut         int    // bytes of sequences that did not fit in the dictionary
}

// learn searches a value that compresses badly for sequences. It skips the value if another call
// is in progress.
func (p *Pool) learn(value []byte, totalSize int64) {
	if p.pause.Add(-1) >= 0 || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	x := p.current.Load()
	if x == nil {
		return
	}

	// 1. Search the parts of the value that the dictionary does not contain.
	found := 0
	m := x.newMatcher(value)
	for {
		start, end, at, ok := m.nextMatch()
		if !ok {
			break
		}
		found += p.searchSequences(value[m.unmatched:start], totalSize)
		m.advance(start, end, at)
	}
	found += p.searchSequences(value[m.unmatched:], totalSize)
	p.found += found

	// 2. Skip values after many without a new sequence.
	p.pause.Store(0)
	switch {
	case found >= minSequence:
		p.misses = 0
		p.lastPause = 0
	case p.misses < maxMisses:
		p.misses++
	default:
		p.misses -= valuesAfterPause
		p.lastPause = min(2*p.lastPause+1, maxPause)
		p.pause.Store(p.lastPause)
	}
}

// searchSequences searches a part of a value for sequences that recent values contain too. It adds them
// to the dictionary and returns their number of bytes.
func (p *Pool) searchSequences(part []byte, totalSize int64) (found int) {
	if len(part) < minSequence {
		return 0
	}
	if p.recent == nil {
		p.resetRecent(totalSize)
	}
	matches := p.recent.newMatcher(part)
	for {
		start, end, at, ok := matches.nextMatch()
		if !ok {
			break
		}
		if sequence := part[start:end]; len(sequence) >= minSequence {
			sequence = sequence[:min(len(sequence), maxSequence)]
			x := p.indexFor(len(sequence), totalSize)
			if x != nil {
				x.add(sequence)
			}
			if x != nil || !p.blocked {
				found += len(sequence)
			}
		}
		matches.advance(start, end, at)
	}

	// Remember the part, if most of it is new.
	if found < len(part)/2 {
		part = part[:min(len(part), len(p.recent.dict.text)/recentPart)]
		if p.recent.free() < len(part) {
			p.resetRecent(totalSize)
		}
		p.recent.add(part)
	}
	return found
}

// resetRecent discards the text of recent values.
func (p *Pool) resetRecent(totalSize int64) {
	size := minRecent
	for size < maxRecent && totalSize >= worthOf(2*size) {
		size *= 2
	}
	p.recent = newIndex(size, 1)
	p.idleCompactions = 0
}
