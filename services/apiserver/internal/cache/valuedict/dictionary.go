package valuedict

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
)

// Dictionary is the text that packed values refer to. It only grows. It is safe for concurrent use,
// and must not be copied.
type Dictionary struct {
	text []byte // never reallocated
	used atomic.Int64
}

// Append appends the unpacked form of a value that was packed with the dictionary.
func (b *Dictionary) Append(dst, packed []byte) []byte {
	size, i := uvarint(packed, 0)
	dst = slices.Grow(dst, int(size))
	next := 0
	for i < len(packed) {
		var own, n, step uint64
		own, i = uvarint(packed, i)
		dst = append(dst, packed[i:i+int(own)]...)
		i += int(own)
		if i == len(packed) {
			break
		}
		n, i = uvarint(packed, i)
		step, i = uvarint(packed, i)
		next += int(int64(step>>1) ^ -int64(step&1))
		dst = append(dst, b.text[next:next+int(n)]...)
		next += int(n)
	}
	return dst
}

// Size returns the unpacked size in bytes of a packed value.
func Size(packed []byte) int {
	n, _ := uvarint(packed, 0)
	return int(n)
}

// uvarint decodes a number at i and returns it with the offset after it. Most numbers have one
// byte.
func uvarint(b []byte, i int) (uint64, int) {
	if c := b[i]; c < 0x80 {
		return uint64(c), i + 1
	}
	v, n := binary.Uvarint(b[i:])
	return v, i + n
}

// index finds positions in a dictionary's text by the eight bytes at the position. It may miss
// some. Lookups run concurrently with additions, so every hit is compared with the text.
type index struct {
	dict  *Dictionary
	slots []atomic.Uint32 // position+1 in the low bits, bits of the hash above
	shift uint
	every int // distance of the indexed positions
}

const (
	// word is the number of bytes compared at once and the minimum length of a match. block is the
	// number of bytes compared at once in a long match.
	word, block = 8, 64
	// bytesPerSlot is the number of text bytes for each slot.
	bytesPerSlot = 4
	// placeBits is the number of bits of a slot that hold the position.
	placeBits = 20
	placeMask = 1<<placeBits - 1
)

// newIndex returns an index with a new dictionary of the given size, a power of two.
func newIndex(size, every int) *index {
	x := &index{dict: &Dictionary{text: make([]byte, size)}, slots: make([]atomic.Uint32, size/bytesPerSlot), every: every, shift: 64}
	for n := len(x.slots); n > 1; n /= 2 {
		x.shift--
	}
	return x
}

func load(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func hash(v uint64) uint64 { return v * 0x9e3779b97f4a7c15 }

// tag returns the bits of a hash that a slot holds.
func tag(h uint64) uint32 { return uint32(h>>placeBits) &^ placeMask }

// free returns how many bytes can be added.
func (x *index) free() int { return len(x.dict.text) - int(x.dict.used.Load()) }

// add adds text, which must fit. Calls must not be concurrent.
func (x *index) add(more []byte) {
	used := int(x.dict.used.Load())
	end := used + copy(x.dict.text[used:], more)
	x.dict.used.Store(int64(end))
	from := max(0, used-word+1)
	for at := (from + x.every - 1) / x.every * x.every; at+word <= end; at += x.every {
		h := hash(load(x.dict.text[at:]))
		x.slots[h>>x.shift].Store(tag(h) | uint32(at+1))
	}
}

// matches iterates over the parts of a value that are in a dictionary.
type matches struct {
	index *index
	text  []byte
	value []byte
	own   int // start of the unmatched bytes
	next  int // position in the text after the last match
}

func (x *index) matches(value []byte) matches {
	return matches{index: x, text: x.dict.text[:x.dict.used.Load()], value: value}
}

const (
	// After patience bytes without a match, the search advances in strides, and after longPatience
	// bytes in longer ones. The strides are coprime to the distance of indexed positions, so that
	// no position is always skipped.
	patience, stride         = 4, 3
	longPatience, longStride = 24, 7
)

// step returns the next match, value[start:end], and its position in the text. It returns false at
// the end. The bytes between m.own and start, or the end, are not in the text.
func (m *matches) step() (start, end, at int, ok bool) {
	value, text, own, next := m.value, m.text, m.own, m.next
	slots, shift := m.index.slots, m.index.shift
	for p := own; p+word <= len(value); {
		v := load(value[p:])
		// Candidates: the position after the last match, that position after a replacement of equal
		// length, and the position in the index.
		at = next
		if uint(at+word) > uint(len(text)) || load(text[at:]) != v {
			at += p - own
			if uint(at+word) > uint(len(text)) || load(text[at:]) != v {
				h := hash(v)
				slot := slots[h>>shift].Load()
				at = int(slot&placeMask) - 1
				if at < 0 || slot&^placeMask != tag(h) || at+word > len(text) || load(text[at:]) != v {
					n := p - own
					switch {
					case n < patience:
						p++
					case n < longPatience:
						p += stride
					default:
						p += longStride
					}
					continue
				}
			}
		}
		start, end = p, p+word
		to := at + word
		for start > own && at > 0 && value[start-1] == text[at-1] {
			start--
			at--
		}
		for end+block <= len(value) && to+block <= len(text) && string(value[end:end+block]) == string(text[to:to+block]) {
			end += block
			to += block
		}
		for end+word <= len(value) && to+word <= len(text) && load(value[end:]) == load(text[to:]) {
			end += word
			to += word
		}
		for end < len(value) && to < len(text) && value[end] == text[to] {
			end++
			to++
		}
		return start, end, at, true
	}
	return 0, 0, 0, false
}

// advance advances past a match that step returned.
func (m *matches) advance(start, end, at int) { m.own, m.next = end, at+end-start }

// pack appends the packed form of a value. own is the number of its bytes that are not in the
// dictionary.
func (x *index) pack(dst, value []byte) (_ []byte, own int) {
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	m := x.matches(value)
	for {
		start, end, at, ok := m.step()
		if !ok {
			break
		}
		own += start - m.own
		dst = binary.AppendUvarint(dst, uint64(start-m.own))
		dst = append(dst, value[m.own:start]...)
		dst = binary.AppendUvarint(dst, uint64(end-start))
		dst = binary.AppendVarint(dst, int64(at-m.next))
		m.advance(start, end, at)
	}
	if rest := value[m.own:]; len(rest) > 0 {
		own += len(rest)
		dst = binary.AppendUvarint(dst, uint64(len(rest)))
		dst = append(dst, rest...)
	}
	return dst, own
}
