package valuedict

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
)

// Dictionary is the text that compressed values refer to. It only grows. It is safe for concurrent
// use, and must not be copied.
type Dictionary struct {
	text []byte // never reallocated
	used atomic.Int64
}

// Append appends the uncompressed form of a value that was compressed with the dictionary.
func (d *Dictionary) Append(dst, packed []byte) []byte {
	size, i := uvarint(packed, 0)
	dst = slices.Grow(dst, int(size))
	position := 0 // in the text: the end of the previous sequence
	for i < len(packed) {
		var own, length, distance uint64
		own, i = uvarint(packed, i)
		dst = append(dst, packed[i:i+int(own)]...)
		i += int(own)
		if i == len(packed) {
			break
		}
		length, i = uvarint(packed, i)
		distance, i = uvarint(packed, i)
		position += zigzag(distance)
		dst = append(dst, d.text[position:position+int(length)]...)
		position += int(length)
	}
	return dst
}

// Size returns the uncompressed size in bytes of a compressed value.
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

// zigzag returns the signed number that binary.AppendVarint encodes as the given unsigned one.
func zigzag(v uint64) int { return int(int64(v>>1) ^ -int64(v&1)) }

// index finds positions in a dictionary's text by the eight bytes at the position. It may miss
// some. Lookups run concurrently with additions, so every hit is compared with the text.
type index struct {
	dict     *Dictionary
	slots    []atomic.Uint32 // position+1 in the low bits, bits of the hash above
	shift    uint            // of a hash, whose remaining high bits are the number of a slot
	distance int             // distance of the indexed positions
}

const (
	// word is the number of bytes compared in one step and the minimum length of a match.
	word = 8
	// block is the number of bytes compared in one step in a long match.
	block = 64
	// bytesPerSlot is the number of text bytes for each slot.
	bytesPerSlot = 4
	// positionBits is the number of bits of a slot that hold the position.
	positionBits = 20
	positionMask = 1<<positionBits - 1
)

// newIndex returns an index with a new dictionary of the given size, a power of two.
func newIndex(size, distance int) *index {
	x := &index{
		dict:     &Dictionary{text: make([]byte, size)},
		slots:    make([]atomic.Uint32, size/bytesPerSlot),
		distance: distance,
		shift:    64,
	}
	for n := len(x.slots); n > 1; n /= 2 {
		x.shift--
	}
	return x
}

// firstWord returns the first word of b as a number.
func firstWord(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// hash returns the product of a word and 2^64 divided by the golden ratio (Fibonacci hashing).
func hash(v uint64) uint64 { return v * 0x9e3779b97f4a7c15 }

// tag returns the bits of a hash that a slot holds.
func tag(h uint64) uint32 { return uint32(h>>positionBits) &^ positionMask }

// lookup returns a position at which the text may contain a word, or -1.
func (x *index) lookup(v uint64) int {
	h := hash(v)
	slot := x.slots[h>>x.shift].Load()
	if slot&^positionMask != tag(h) {
		return -1
	}
	return int(slot&positionMask) - 1
}

// free returns how many bytes can be added.
func (x *index) free() int { return len(x.dict.text) - int(x.dict.used.Load()) }

// add adds text, which must fit. Calls must not be concurrent.
func (x *index) add(more []byte) {
	used := int(x.dict.used.Load())
	end := used + copy(x.dict.text[used:], more)
	x.dict.used.Store(int64(end))
	from := max(0, used-word+1)
	for at := (from + x.distance - 1) / x.distance * x.distance; at+word <= end; at += x.distance {
		h := hash(firstWord(x.dict.text[at:]))
		x.slots[h>>x.shift].Store(tag(h) | uint32(at+1))
	}
}

// matcher iterates over the parts of a value that are in a dictionary.
type matcher struct {
	index     *index
	text      []byte
	value     []byte
	unmatched int // start of the bytes after the last match
	next      int // position in the text after the last match
}

// newMatcher returns an iterator over the matches of a value with the text that exists now.
func (x *index) newMatcher(value []byte) matcher {
	return matcher{index: x, text: x.dict.text[:x.dict.used.Load()], value: value}
}

const (
	// After patience bytes without a match, the search advances in strides, and after longPatience
	// bytes in longer ones. The strides are coprime to the distance of indexed positions, so that
	// no position is always skipped.
	patience, stride         = 4, 3
	longPatience, longStride = 24, 7
)

// strideAfter returns the number of bytes to advance after the given number of bytes without a
// match.
func strideAfter(unmatched int) int {
	switch {
	case unmatched < patience:
		return 1
	case unmatched < longPatience:
		return stride
	default:
		return longStride
	}
}

// hasWord reports whether the text contains a word at a position.
func hasWord(text []byte, position int, v uint64) bool {
	return uint(position+word) <= uint(len(text)) && firstWord(text[position:]) == v
}

// nextMatch returns the next match, value[start:end], and its position in the text. It returns
// false at the end. The bytes between m.unmatched and start, or the end, are not in the text.
func (m *matcher) nextMatch() (start, end, at int, ok bool) {
	for position := m.unmatched; position+word <= len(m.value); {
		v := firstWord(m.value[position:])
		// Candidates: the position after the last match, that position after a replacement of equal
		// length, and the position in the index.
		at = m.next
		if !hasWord(m.text, at, v) {
			at += position - m.unmatched
		}
		if !hasWord(m.text, at, v) {
			at = m.index.lookup(v)
		}
		if at >= 0 && hasWord(m.text, at, v) {
			start, end, at = m.extend(position, at)
			return start, end, at, true
		}
		position += strideAfter(position - m.unmatched)
	}
	return 0, 0, 0, false
}

// extend extends the match of a word at p in the value and at a position in the text to the longest
// match that contains it.
func (m *matcher) extend(valuePosition, textPosition int) (start, end, at int) {
	value := m.value
	text := m.text
	start = valuePosition
	at = textPosition
	for start > m.unmatched && at > 0 && value[start-1] == text[at-1] {
		start--
		at--
	}
	end = valuePosition + word
	textEnd := textPosition + word
	for end+block <= len(value) && textEnd+block <= len(text) &&
		string(value[end:end+block]) == string(text[textEnd:textEnd+block]) {
		end += block
		textEnd += block
	}
	for end+word <= len(value) && textEnd+word <= len(text) && firstWord(value[end:]) == firstWord(text[textEnd:]) {
		end += word
		textEnd += word
	}
	for end < len(value) && textEnd < len(text) && value[end] == text[textEnd] {
		end++
		textEnd++
	}
	return start, end, at
}

// advance advances past a match that nextMatch returned.
func (m *matcher) advance(start, end, at int) { m.unmatched, m.next = end, at+end-start }

// compress appends the compressed form of a value. own is the number of its bytes that are not in
// the dictionary.
func (x *index) compress(dst, value []byte) (_ []byte, own int) {
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	matches := x.newMatcher(value)
	for {
		start, end, at, ok := matches.nextMatch()
		if !ok {
			break
		}
		own += start - matches.unmatched
		dst = binary.AppendUvarint(dst, uint64(start-matches.unmatched))
		dst = append(dst, value[matches.unmatched:start]...)
		dst = binary.AppendUvarint(dst, uint64(end-start))
		dst = binary.AppendVarint(dst, int64(at-matches.next))
		matches.advance(start, end, at)
	}
	if rest := value[matches.unmatched:]; len(rest) > 0 {
		own += len(rest)
		dst = binary.AppendUvarint(dst, uint64(len(rest)))
		dst = append(dst, rest...)
	}
	return dst, own
}
