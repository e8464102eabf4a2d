package tape

import (
	"bytes"
	"unsafe"
)

// maxPairwiseKeys is the number of members up to which markShadowed compares every pair of keys.
// For more members it uses a map.
const maxPairwiseKeys = 12

// maxReusedKeys is the maximum size of a key map that is reused for other objects.
const maxReusedKeys = 256

// markShadowed marks the keys of an object that occur again later.
func (p *parser) markShadowed(object Ref) {
	if p.keysAscend(object) {
		return
	}
	tapeEntry := &p.entries[object]
	n := tapeEntry.count()
	if n > maxPairwiseKeys {
		p.markShadowedWithMap(object, n)
		return
	}
	var seen [maxPairwiseKeys]Ref // the last occurrence of each key
	count := 0
	for key := object + 1; key < tapeEntry.next; key = p.entries[key+1].next {
		for i := range count {
			if p.equalKeys(seen[i], key) {
				p.markKeyShadowed(seen[i])
				seen[i] = seen[count-1]
				count--
				break
			}
		}
		seen[count] = key
		count++
	}
}

// keysAscend reports whether the keys of an object have no escapes and are sorted, as the server
// writes them. Then no key is repeated.
func (p *parser) keysAscend(object Ref) bool {
	var before []byte
	for key, end := object+1, p.entries[object].next; key < end; key = p.entries[key+1].next {
		tapeEntry := &p.entries[key]
		if tapeEntry.flags()&(escaped|malformed) != 0 {
			return false
		}
		name := p.raw[tapeEntry.start:tapeEntry.end]
		if key > object+1 && bytes.Compare(before, name) >= 0 {
			return false
		}
		before = name
	}
	return true
}

// markShadowedWithMap does the work of markShadowed for an object of count members.
func (p *parser) markShadowedWithMap(object Ref, count int) {
	if p.seen == nil || count > maxReusedKeys {
		p.seen = make(map[string]Ref, count)
	}
	clear(p.seen)
	for key, end := object+1, p.entries[object].next; key < end; key = p.entries[key+1].next {
		name := p.keyText(key)
		if before, ok := p.seen[name]; ok {
			p.markKeyShadowed(before)
		}
		p.seen[name] = key
	}
	if count > maxReusedKeys {
		p.seen = nil
	}
}

func (p *parser) markKeyShadowed(key Ref) {
	p.entries[key].packed |= shadowed
	p.unclean = true
}

// keyText returns a key without escapes. It may share the memory of the document.
func (p *parser) keyText(k Ref) string {
	e := &p.entries[k]
	data := p.raw[e.start:e.end]
	if e.flags()&(escaped|malformed) != 0 {
		return string(unescape(data))
	}
	return unsafe.String(unsafe.SliceData(data), len(data))
}

func (p *parser) equalKeys(a, b Ref) bool {
	x, y := &p.entries[a], &p.entries[b]
	if (x.flags()|y.flags())&(escaped|malformed) != 0 {
		return p.keyText(a) == p.keyText(b)
	}
	return x.end-x.start == y.end-y.start && bytes.Equal(p.raw[x.start:x.end], p.raw[y.start:y.end])
}
