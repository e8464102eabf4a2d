package transcode

import (
	"bytes"
	"encoding/binary"
)

// Memo caches the common parts of the objects of a list: pods of one template have the same ports,
// probes, volumes and managed fields. From the second occurrence of a piece on, its JSON is copied.
// A Memo is not safe for concurrent use and holds at most memoSlots pieces. A nil Memo caches
// nothing.
type Memo struct {
	of *Program
	*remembered
}

// remembered is the content of a Memo. The memos of a program reuse it, one response after the
// other, until the garbage collector frees it.
type remembered struct {
	slots  [memoSlots]memoSlot
	scores []score // by field id
}

// score counts the lookups and hits of a field.
type score struct{ tries, hits uint16 }

const (
	memoSlots = 256
	// Pieces outside these sizes, in stored bytes, are not cached. Small pieces cost no more to
	// write, and large ones rarely repeat.
	minPiece, maxPiece = 24, 16 << 10
	// After enoughTries lookups, a field is cached only while at least one lookup in worthwhile
	// hits. The counts restart after maxTries.
	enoughTries, worthwhile, maxTries = 48, 3, 1 << 12
	// memoPatience is the number of other pieces that a cached piece survives in its slot.
	memoPatience = 8
)

// memoSlot holds one piece: the value of a field and, from its second occurrence on, its JSON.
type memoSlot struct {
	of     *field
	raw    []byte
	json   []byte
	ready  bool
	misses uint8
}

// use prepares the memo for a program.
func (m *Memo) use(p *Program) {
	if m == nil || m.of == p {
		return
	}
	m.Done()
	r, ok := p.memos.Get().(*remembered)
	if !ok {
		r = &remembered{scores: make([]score, p.count)}
	}
	*m = Memo{of: p, remembered: r}
}

// Done returns the cached pieces to the program's pool.
func (m *Memo) Done() {
	if m.of != nil {
		m.of.memos.Put(m.remembered)
		*m = Memo{}
	}
}

func (m *Memo) hit(f *field) { m.scores[f.id].hits++ }

// slot returns the slot of a piece, or nil if the piece is not to be cached.
func (m *Memo) slot(f *field, raw []byte) *memoSlot {
	if m == nil || len(raw) < minPiece || len(raw) > maxPiece {
		return nil
	}
	fieldScore := &m.scores[f.id]
	fieldScore.tries++
	if fieldScore.tries >= enoughTries {
		if fieldScore.hits*worthwhile < fieldScore.tries {
			fieldScore.tries--
			return nil
		}
		if fieldScore.tries >= maxTries {
			*fieldScore = score{}
		}
	}
	hash := uint64(len(raw))<<32 | f.tag
	hash = (hash ^ binary.LittleEndian.Uint64(raw)) * 0x9e3779b97f4a7c15
	hash = (hash ^ hash>>29 ^ binary.LittleEndian.Uint64(raw[len(raw)-8:])) * 0xbf58476d1ce4e5b9
	return &m.slots[(hash>>32)%memoSlots]
}

// holds reports whether the slot contains the given piece.
func (s *memoSlot) holds(f *field, raw []byte) bool { return s.of == f && bytes.Equal(s.raw, raw) }

// store records the JSON of a piece.
func (s *memoSlot) store(f *field, raw, json []byte) {
	switch {
	case s.holds(f, raw):
		s.json = append(s.json[:0], json...)
		s.ready = true
	case s.ready && s.misses < memoPatience:
		s.misses++
	default:
		s.of, s.raw, s.ready, s.misses = f, append(s.raw[:0], raw...), false, 0
	}
}
