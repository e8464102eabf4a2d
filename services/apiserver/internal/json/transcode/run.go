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
	memo.attach(p)
	r := runner{meta: p.root.fields[p.meta].message, version: version, memo: memo}
	at := len(dst)
	dst, ok := r.appendFields(p.root, dst, raw, 0)
	return closeObject(dst, at), ok && r.meta == nil
}

// closeObject completes an object whose fields start at dst[at], each preceded by a comma: it
// replaces the first comma by the opening brace and appends the closing brace.
func closeObject(dst []byte, at int) []byte {
	if len(dst) == at {
		return append(dst, '{', '}')
	}
	dst[at] = '{'
	return append(dst, '}')
}

// runner holds the state of one Append.
type runner struct {
	// meta is the type of the object's own metadata, until that is written. Then it is nil: nested
	// metadata, such as that of a pod template, has the same type but gets no resourceVersion.
	meta    *message
	version int64
	memo    *Memo
}

// appendObject appends the object of a message.
func (r *runner) appendObject(msg *message, dst, data []byte, depth int) ([]byte, bool) {
	if len(data) == 0 && msg.empty != nil && msg != r.meta {
		return append(dst, msg.empty...), true
	}
	at := len(dst)
	dst, ok := r.appendFields(msg, dst, data, depth)
	return closeObject(dst, at), ok
}

// appendFields appends the fields of a message, each preceded by a comma.
func (r *runner) appendFields(msg *message, dst, encoded []byte, depth int) ([]byte, bool) {
	if msg.ordered && depth <= maxDepth {
		dst, ok, reordered := r.appendInOrder(msg, dst, encoded, depth)
		if !reordered {
			return dst, ok
		}
	}
	if len(msg.fields) <= 16 {
		var at [16]position
		return r.scanAndAppend(msg, dst, encoded, at[:], depth)
	}
	return r.appendManyFields(msg, dst, encoded, depth)
}

// appendManyFields is separate so that messages with few fields need little stack.
//
//go:noinline
func (r *runner) appendManyFields(m *message, dst, b []byte, depth int) ([]byte, bool) {
	var at [maxFields]position
	return r.scanAndAppend(m, dst, b, at[:], depth)
}

// scanAndAppend scans a message and appends its fields in the order of the Go type. at is scratch
// space for the positions of the fields.
func (r *runner) scanAndAppend(msg *message, dst, data []byte, at []position, depth int) ([]byte, bool) {
	found, ok := msg.scan(data, at)
	if !ok || depth > maxDepth {
		return dst, false
	}
	if (msg.needed != 0 || len(msg.checks) > 0) && !msg.satisfiesRules(data, at, found) {
		return dst, false
	}
	isOwn := r.takeOwnMetadata(msg)
	for remaining := found | msg.always; remaining != 0; remaining &= remaining - 1 {
		i := bits.TrailingZeros64(remaining)
		target := &msg.fields[i]
		if found>>i&1 == 0 {
			dst, ok = r.appendAbsentField(target, dst, isOwn, depth)
		} else {
			dst, ok = r.appendField(target, dst, data[at[i].from:at[i].to], isOwn, depth)
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

// appendInOrder appends the fields of a message that has them in the order of the Go type, so that
// one pass is enough. If the order differs, it undoes its changes and returns reordered.
func (r *runner) appendInOrder(msg *message, dst, data []byte, depth int) (_ []byte, ok, reordered bool) {
	begin, ownMetadata := len(dst), r.meta
	isOwn := r.takeOwnMetadata(msg)
	var found uint64
	for i := 0; i < len(data); {
		start := i
		tag := uint64(data[i])
		next := i + 1
		if tag >= 0x80 {
			tag, next = varint(data, start)
			if next < 0 {
				return dst, false, false
			}
		}
		index := msg.fieldIndex(tag)
		if index < 0 {
			return dst, false, false
		}
		from, end := valueAt(data, next, tag)
		if end < 0 {
			return dst, false, false
		}
		i = end
		if index == len(msg.fields) {
			continue // an unknown field
		}
		bit := uint64(1) << index
		if found >= bit { // this field or a later one was already appended
			r.meta = ownMetadata
			return dst[:begin], false, true
		}
		if gap := msg.always & (bit - 1); gap > found {
			if dst, ok = r.appendAbsentFields(msg, dst, gap, found, isOwn, depth); !ok {
				return dst, false, false
			}
		}
		found |= bit
		if msg.repeated&bit != 0 { // the value extends to the last of the adjacent entries
			from = start
			for bytes.HasPrefix(data[i:], data[start:next]) {
				_, end = valueAt(data, i+next-start, tag)
				if end < 0 {
					return dst, false, false
				}
				i = end
			}
		}
		if dst, ok = r.appendField(&msg.fields[index], dst, data[from:i], isOwn, depth); !ok {
			return dst, false, false
		}
	}
	if found&msg.needed != msg.needed {
		return dst, false, false
	}
	dst, ok = r.appendAbsentFields(msg, dst, msg.always&^found, found, isOwn, depth)
	return dst, ok, false
}

// appendAbsentFields appends the fields in gap that follow the last field in found. The message
// lacks all of gap. Earlier fields of gap were appended before.
func (r *runner) appendAbsentFields(m *message, dst []byte, gap, found uint64, isOwn bool, depth int) (_ []byte, ok bool) {
	for gap &= ^uint64(0) << bits.Len64(found); gap != 0; gap &= gap - 1 {
		if dst, ok = r.appendAbsentField(&m.fields[bits.TrailingZeros64(gap)], dst, isOwn, depth); !ok {
			return dst, false
		}
	}
	return dst, true
}

// appendAbsentField appends a field that the message lacks.
func (r *runner) appendAbsentField(target *field, dst []byte, isOwn bool, depth int) ([]byte, bool) {
	switch {
	case target.kind == version && isOwn:
		return r.appendVersion(target, dst), true
	case target.message != nil && target.message == r.meta:
		return r.appendObject(target.message, append(dst, target.name...), nil, depth+1)
	}
	return append(dst, target.absent...), true
}

// appendVersion appends the resourceVersion field, unless the object has no version.
func (r *runner) appendVersion(target *field, dst []byte) []byte {
	if r.version == 0 {
		return dst
	}
	dst = append(append(dst, target.name...), '"')
	return append(AppendVersion(dst, r.version), '"')
}

// VersionZero stands for the resourceVersion "0". A dry run returns it to a client that sent it.
const VersionZero = -1

// AppendVersion appends a resourceVersion that is not 0.
func AppendVersion(dst []byte, version int64) []byte {
	return strconv.AppendInt(dst, max(version, 0), 10)
}

// appendField appends a field that the message has, with the value data.
func (r *runner) appendField(target *field, dst, data []byte, isOwn bool, depth int) ([]byte, bool) {
	switch target.kind {
	case text, version, binaryText:
		if target.kind == version && isOwn {
			return r.appendVersion(target, dst), true
		}
		if len(data) == 0 {
			if target.needed && !target.pointer {
				return dst, false
			}
			if !target.always {
				return dst, true
			}
		}
		dst = append(dst, target.name...)
		if target.kind == binaryText {
			return appendBinary(dst, data), true
		}
		return jsontext.AppendBytes(dst, data), true
	case boolean, number32, number64:
		number, _ := varint(data, 0)
		if target.kind == number32 {
			number = uint64(int64(int32(number)))
		}
		if number == 0 {
			if target.needed && !target.pointer {
				return dst, false
			}
			if !target.always {
				return dst, true
			}
		}
		return appendNumber(append(dst, target.name...), target.kind, number), true
	case inline:
		return r.appendFields(target.message, dst, data, depth+1)
	case list, dictionary, nested, embedded:
		return r.appendValue(target, target.kind, append(dst, target.name...), data, depth)
	}
	return appendSpecial(append(dst, target.name...), target.kind, data)
}

// appendValue appends a value that the memo may cache: a list, a map, a message or embedded JSON.
// fieldKind is the kind of the field, or of its elements if data is an element.
func (r *runner) appendValue(target *field, fieldKind kind, dst, data []byte, depth int) (_ []byte, ok bool) {
	var slot *memoSlot
	if target.message == nil || target.message != r.meta { // the own metadata contains the version and is not cached
		slot = r.memo.slotFor(target, data)
	}
	if slot != nil && slot.ready && slot.holds(target, data) {
		r.memo.recordHit(target)
		return append(dst, slot.json...), true
	}
	at := len(dst)
	switch fieldKind {
	case list:
		dst, ok = r.appendList(target, dst, data, depth)
	case dictionary:
		dst, ok = r.appendMap(target, dst, data, depth)
	case nested:
		dst, ok = r.appendObject(target.message, dst, data, depth+1)
	default:
		dst, ok = appendSpecial(dst, fieldKind, data)
	}
	if slot != nil && ok {
		slot.store(target, data, dst[at:])
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

// appendBinary appends bytes as a base64 string.
func appendBinary(dst, v []byte) []byte {
	dst = base64.StdEncoding.AppendEncode(append(dst, '"'), v)
	return append(dst, '"')
}
