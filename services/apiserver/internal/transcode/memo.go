package transcode

import (
	"bytes"
	"encoding/binary"
)

// Memo remembers what the objects of a list have in common: pods of one template have
// the same ports, probes and volumes, and fields owned. The JSON of what was seen twice
// is copied from then on. It is for one goroutine and holds at most memoSlots pieces. Nil remembers nothing.
type Memo struct {
	of *Program
	*remembered
}

// remembered is what a program's memos have in turn, one answer after the other, until
// the garbage collector takes it.
type remembered struct {
	slots  [memoSlots]memoSlot
	scores []score // by field
}

// score is how often a field was looked for, and found.
type score struct{ tries, hits uint16 }

const (
	memoSlots = 256
	// Pieces of other sizes, as stored, are made anew each time: small ones cost no
	// more, large ones are seldom the same.
	leastPiece, mostPiece = 24, 16 << 10
	// enoughTries tell whether a field is worth looking for: one time in so many it has
	// to be found. They are counted anew from time to time.
	enoughTries, worthwhile, mostTries = 48, 3, 1 << 12
	// memoPatience is how many others a remembered piece outlives in its slot.
	memoPatience = 8
)

// memoSlot has one piece: the value of a field, and its JSON once it was seen twice.
type memoSlot struct {
	of     *field
	raw    []byte
	json   []byte
	ready  bool
	misses uint8
}

// use begins with another program.
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

// Done leaves what is remembered to the next answer.
func (m *Memo) Done() {
	if m.of != nil {
		m.of.memos.Put(m.remembered)
		*m = Memo{}
	}
}

func (m *Memo) hit(f *field) { m.scores[f.id].hits++ }

// slot returns where a piece is, or would be; nil when it is not to be remembered.
func (m *Memo) slot(f *field, raw []byte) *memoSlot {
	if m == nil || len(raw) < leastPiece || len(raw) > mostPiece {
		return nil
	}
	sc := &m.scores[f.id]
	if sc.tries++; sc.tries >= enoughTries {
		if sc.hits*worthwhile < sc.tries {
			sc.tries--
			return nil
		}
		if sc.tries >= mostTries {
			*sc = score{}
		}
	}
	h := uint64(len(raw))<<32 | f.tag
	h = (h ^ binary.LittleEndian.Uint64(raw)) * 0x9e3779b97f4a7c15
	h = (h ^ h>>29 ^ binary.LittleEndian.Uint64(raw[len(raw)-8:])) * 0xbf58476d1ce4e5b9
	return &m.slots[(h>>32)%memoSlots]
}

// holds tells whether the slot's piece is this one.
func (s *memoSlot) holds(f *field, raw []byte) bool { return s.of == f && bytes.Equal(s.raw, raw) }

// saw takes up what was made of a piece.
func (s *memoSlot) saw(f *field, raw, json []byte) {
	switch {
	case s.holds(f, raw):
		s.json, s.ready = append(s.json[:0], json...), true
	case s.ready && s.misses < memoPatience:
		s.misses++
	default:
		s.of, s.raw, s.ready, s.misses = f, append(s.raw[:0], raw...), false, 0
	}
}
