package transcode

import (
	"bytes"
	"encoding/base64"
	"math/bits"
	"strconv"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// maxDepth is the maximum nesting depth of messages.
const maxDepth = 64

// Append appends the JSON object of a message with its resourceVersion. Version 0 means none. If
// the program cannot write the message, Append returns false and dst with arbitrary bytes appended.
// The memo belongs to the current response and may be nil.
func (p *Program) Append(dst, raw []byte, version int64, memo *Memo) ([]byte, bool) {
	memo.use(p)
	r := runner{meta: p.root.fields[p.meta].of, version: version, memo: memo}
	at := len(dst)
	dst, ok := r.fieldsOf(p.root, dst, raw, 0)
	return closeObject(dst, at), ok && r.meta == nil
}

// closeObject ends an object whose fields were appended from at on, each preceded by a comma.
func closeObject(dst []byte, at int) []byte {
	if len(dst) == at {
		return append(dst, '{', '}')
	}
	dst[at] = '{'
	return append(dst, '}')
}

// runner holds the state of one Append.
type runner struct {
	// meta is the message of the object's own metadata. It is nil once that was written.
	meta    *message
	version int64
	memo    *Memo
}

// object appends the object of a message.
func (r *runner) object(m *message, dst, b []byte, depth int) ([]byte, bool) {
	if len(b) == 0 && m.empty != nil && m != r.meta {
		return append(dst, m.empty...), true
	}
	at := len(dst)
	dst, ok := r.fieldsOf(m, dst, b, depth)
	return closeObject(dst, at), ok
}

// fieldsOf appends the fields of a message, each preceded by a comma.
func (r *runner) fieldsOf(m *message, dst, b []byte, depth int) ([]byte, bool) {
	if m.ordered && depth <= maxDepth {
		dst, ok, reordered := r.appendInOrder(m, dst, b, depth)
		if !reordered {
			return dst, ok
		}
	}
	if len(m.fields) <= 16 {
		var at [16]position
		return r.write(m, dst, b, at[:], depth)
	}
	return r.manyFieldsOf(m, dst, b, depth)
}

// manyFieldsOf is separate so that messages with few fields need little stack.
//
//go:noinline
func (r *runner) manyFieldsOf(m *message, dst, b []byte, depth int) ([]byte, bool) {
	var at [maxFields]position
	return r.write(m, dst, b, at[:], depth)
}

// write scans a message and appends its fields.
func (r *runner) write(m *message, dst, b []byte, at []position, depth int) ([]byte, bool) {
	found, ok := m.scan(b, at)
	if !ok || depth > maxDepth {
		return dst, false
	}
	if (m.needed != 0 || len(m.checks) > 0) && !m.satisfiesRules(b, at, found) {
		return dst, false
	}
	isOwn := r.takeOwnMetadata(m)
	for remaining := found | m.always; remaining != 0; remaining &= remaining - 1 {
		i := bits.TrailingZeros64(remaining)
		f := &m.fields[i]
		if found>>i&1 == 0 {
			dst, ok = r.appendDefault(f, dst, isOwn, depth)
		} else {
			dst, ok = r.field(f, dst, b[at[i].from:at[i].to], isOwn, depth)
		}
		if !ok {
			return dst, false
		}
	}
	return dst, true
}

// takeOwnMetadata reports whether a message is the object's own metadata. It returns true only
// once.
func (r *runner) takeOwnMetadata(m *message) bool {
	isOwn := m == r.meta
	if isOwn {
		r.meta = nil
	}
	return isOwn
}

// appendInOrder appends the fields of a message that has them in the order of the Go type. If the
// order differs, it undoes its changes and returns again.
func (r *runner) appendInOrder(m *message, dst, b []byte, depth int) (_ []byte, ok, reordered bool) {
	begin, ownMetadata := len(dst), r.meta
	isOwn := r.takeOwnMetadata(m)
	var found uint64
	for i := 0; i < len(b); {
		start := i
		tag := uint64(b[i])
		next := i + 1
		if tag >= 0x80 {
			tag, next = varint(b, start)
			if next < 0 {
				return dst, false, false
			}
		}
		n := m.index(tag)
		if n < 0 {
			return dst, false, false
		}
		from, end := valueAt(b, next, tag)
		if end < 0 {
			return dst, false, false
		}
		i = end
		if n == len(m.fields) {
			continue // an unknown field
		}
		bit := uint64(1) << n
		if found >= bit {
			r.meta = ownMetadata
			return dst[:begin], false, true
		}
		if gap := m.always & (bit - 1); gap > found {
			if dst, ok = r.appendMissingFields(m, dst, gap, found, isOwn, depth); !ok {
				return dst, false, false
			}
		}
		found |= bit
		if m.repeated&bit != 0 {
			from = start
			for bytes.HasPrefix(b[i:], b[start:next]) {
				_, end = valueAt(b, i+next-start, tag)
				if end < 0 {
					return dst, false, false
				}
				i = end
			}
		}
		if dst, ok = r.field(&m.fields[n], dst, b[from:i], isOwn, depth); !ok {
			return dst, false, false
		}
	}
	if found&m.needed != m.needed {
		return dst, false, false
	}
	dst, ok = r.appendMissingFields(m, dst, m.always&^found, found, isOwn, depth)
	return dst, ok, false
}

// appendMissingFields appends the fields in gap that follow the last field in found. The message
// lacks them.
func (r *runner) appendMissingFields(m *message, dst []byte, gap, found uint64, isOwn bool, depth int) (_ []byte, ok bool) {
	for gap &= ^uint64(0) << bits.Len64(found); gap != 0; gap &= gap - 1 {
		if dst, ok = r.appendDefault(&m.fields[bits.TrailingZeros64(gap)], dst, isOwn, depth); !ok {
			return dst, false
		}
	}
	return dst, true
}

// appendDefault appends a field that the message lacks.
func (r *runner) appendDefault(f *field, dst []byte, own bool, depth int) ([]byte, bool) {
	switch {
	case f.kind == version && own:
		return r.appendVersion(f, dst), true
	case f.of != nil && f.of == r.meta:
		return r.object(f.of, append(dst, f.name...), nil, depth+1)
	}
	return append(dst, f.absent...), true
}

func (r *runner) appendVersion(f *field, dst []byte) []byte {
	if r.version == 0 {
		return dst
	}
	dst = append(append(dst, f.name...), '"')
	return append(AppendVersion(dst, r.version), '"')
}

// VersionZero stands for the resourceVersion "0". A dry run returns it to a client that sent it.
const VersionZero = -1

// AppendVersion appends a resourceVersion that is not 0.
func AppendVersion(dst []byte, version int64) []byte {
	return strconv.AppendInt(dst, max(version, 0), 10)
}

// field appends a field that the message has.
func (r *runner) field(f *field, dst, v []byte, isOwn bool, depth int) ([]byte, bool) {
	switch f.kind {
	case text, version, binaryText:
		if f.kind == version && isOwn {
			return r.appendVersion(f, dst), true
		}
		if len(v) == 0 {
			if f.needed && !f.pointer {
				return dst, false
			}
			if !f.always {
				return dst, true
			}
		}
		dst = append(dst, f.name...)
		if f.kind == binaryText {
			return appendBinary(dst, v), true
		}
		return jsontext.AppendBytes(dst, v), true
	case boolean, number32, number64:
		n, _ := varint(v, 0)
		if f.kind == number32 {
			n = uint64(int64(int32(n)))
		}
		if n == 0 {
			if f.needed && !f.pointer {
				return dst, false
			}
			if !f.always {
				return dst, true
			}
		}
		return appendNumber(append(dst, f.name...), f.kind, n), true
	case inline:
		return r.fieldsOf(f.of, dst, v, depth+1)
	case list, dictionary, nested, embedded:
		return r.appendValue(f, f.kind, append(dst, f.name...), v, depth)
	}
	return appendSpecial(append(dst, f.name...), f.kind, v)
}

// appendValue appends a long or complex value of a field or an element. It copies the JSON from the
// memo if possible.
func (r *runner) appendValue(f *field, k kind, dst, v []byte, depth int) (_ []byte, ok bool) {
	var slot *memoSlot
	if f.of == nil || f.of != r.meta { // the own metadata contains the version and is not cached
		slot = r.memo.slot(f, v)
	}
	if slot != nil && slot.ready && slot.holds(f, v) {
		r.memo.hit(f)
		return append(dst, slot.json...), true
	}
	at := len(dst)
	switch k {
	case list:
		dst, ok = r.list(f, dst, v, depth)
	case dictionary:
		dst, ok = r.dictionary(f, dst, v, depth)
	case nested:
		dst, ok = r.object(f.of, dst, v, depth+1)
	default:
		dst, ok = appendSpecial(dst, k, v)
	}
	if slot != nil && ok {
		slot.store(f, v, dst[at:])
	}
	return dst, ok
}

// appendNumber appends a number or a boolean.
func appendNumber(dst []byte, k kind, n uint64) []byte {
	if k == boolean {
		return strconv.AppendBool(dst, n != 0)
	}
	return strconv.AppendInt(dst, int64(n), 10)
}

func appendBinary(dst, v []byte) []byte {
	dst = base64.StdEncoding.AppendEncode(append(dst, '"'), v)
	return append(dst, '"')
}
