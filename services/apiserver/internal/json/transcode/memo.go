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
	program *Program
	*memoState
}

// memoState is the content of a Memo. Program.memos pools it, so that later responses start with
// the pieces of earlier ones.
type memoState struct {
	slots  [memoSlots]memoSlot
	scores []score // by field id
}

// score counts how often pieces of a field were looked up and found.
type score struct{ lookups, hits uint16 }

const (
	memoSlots = 256
	// Pieces outside these sizes, in stored bytes, are not cached. Small pieces cost no more to
	// write, and large ones rarely repeat.
	minPiece, maxPiece = 24, 16 << 10
	// After warmupLookups lookups, a field is cached only while at least one in lookupsPerHit
	// lookups is a hit. The counts restart after maxLookups.
	warmupLookups, lookupsPerHit, maxLookups = 48, 3, 1 << 12
	// maxMisses is how many offers of other pieces a cached piece survives in its slot.
	maxMisses = 8
)

// memoSlot holds one piece: the value of a field and, from its second occurrence on, its JSON.
type memoSlot struct {
	field  *field
	raw    []byte // the value on the wire
	json   []byte // valid if ready is true
	ready  bool
	misses uint8 // offers of other pieces since the piece became ready
}

// attach prepares the memo for pieces of a program. It returns the pieces
// of another program to that program's pool.
func (m *Memo) attach(program *Program) {
	if m == nil || m.program == program {
		return
	}
	m.Done()
	r, ok := program.memos.Get().(*memoState)
	if !ok {
		r = &memoState{scores: make([]score, program.count)}
	}
	*m = Memo{program: program, memoState: r}
}

// Done returns the cached pieces to the program's pool.
func (m *Memo) Done() {
	if m.program != nil {
		m.program.memos.Put(m.memoState)
		*m = Memo{}
	}
}

func (m *Memo) recordHit(f *field) { m.scores[f.id].hits++ }

// slotFor returns the slot of a piece, or nil if the piece is not cached. The slot may hold another
// piece with the same hash.
func (m *Memo) slotFor(target *field, raw []byte) *memoSlot {
	if m == nil || len(raw) < minPiece || len(raw) > maxPiece {
		return nil
	}
	fieldScore := &m.scores[target.id]
	fieldScore.lookups++
	if fieldScore.lookups >= warmupLookups {
		if fieldScore.hits*lookupsPerHit < fieldScore.lookups {
			fieldScore.lookups--
			return nil
		}
		if fieldScore.lookups >= maxLookups {
			*fieldScore = score{}
		}
	}
	// The hash covers the length, the tag, and the first and last 8 bytes of the piece.
	hash := uint64(len(raw))<<32 | target.tag
	hash = (hash ^ binary.LittleEndian.Uint64(raw)) * 0x9e3779b97f4a7c15
	hash = (hash ^ hash>>29 ^ binary.LittleEndian.Uint64(raw[len(raw)-8:])) * 0xbf58476d1ce4e5b9
	return &m.slots[(hash>>32)%memoSlots]
}

// holds reports whether the slot contains the given piece.
func (s *memoSlot) holds(f *field, raw []byte) bool { return s.field == f && bytes.Equal(s.raw, raw) }

// store offers the JSON of a piece to the slot. The first offer claims the slot and the second one
// keeps the JSON. Another piece replaces a kept one only after maxMisses offers.
func (s *memoSlot) store(target *field, raw, json []byte) {
	switch {
	case s.holds(target, raw):
		s.json = append(s.json[:0], json...)
		s.ready = true
	case s.ready && s.misses < maxMisses:
		s.misses++
	default:
		s.field = target
		s.raw = append(s.raw[:0], raw...)
		s.ready = false
		s.misses = 0
	}
}
