package tape

import (
	"bytes"
	"unsafe"
)

// pairwise is the number of members up to which keys are compared in pairs.
const pairwise = 12

// keptKeys is the maximum size of a key map that is reused.
const keptKeys = 256

// markShadowed marks the keys of an object that occur again later.
func (p *parser) markShadowed(object Ref) {
	if p.ascending(object) {
		return
	}
	e := &p.entries[object]
	n := int(e.count >> 8)
	if n > pairwise {
		p.markShadowedOfMany(object, n)
		return
	}
	var seen [pairwise]Ref
	count := 0
	for k := object + 1; k < e.next; k = p.entries[k+1].next {
		for i := range count {
			if p.sameKey(seen[i], k) {
				p.shadow(seen[i])
				seen[i] = seen[count-1]
				count--
				break
			}
		}
		seen[count] = k
		count++
	}
}

// ascending reports whether the keys of an object have no escapes and are sorted, as the server
// writes them. Then no key is repeated.
func (p *parser) ascending(object Ref) bool {
	var before []byte
	for k, end := object+1, p.entries[object].next; k < end; k = p.entries[k+1].next {
		e := &p.entries[k]
		if e.flags()&(escaped|malformed) != 0 {
			return false
		}
		name := p.raw[e.start:e.end]
		if k > object+1 && bytes.Compare(before, name) >= 0 {
			return false
		}
		before = name
	}
	return true
}

// markShadowedOfMany marks like markShadowed, for an object with many members.
func (p *parser) markShadowedOfMany(object Ref, n int) {
	if p.seen == nil || n > keptKeys {
		p.seen = make(map[string]Ref, n)
	}
	clear(p.seen)
	for k, end := object+1, p.entries[object].next; k < end; k = p.entries[k+1].next {
		name := p.keyText(k)
		if before, ok := p.seen[name]; ok {
			p.shadow(before)
		}
		p.seen[name] = k
	}
	if n > keptKeys {
		p.seen = nil
	}
}

func (p *parser) shadow(key Ref) {
	p.entries[key].count |= shadowed
	p.unclean = true
}

func (p *parser) keyText(k Ref) string {
	e := &p.entries[k]
	b := p.raw[e.start:e.end]
	if e.flags()&(escaped|malformed) != 0 {
		return string(unescape(b))
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (p *parser) sameKey(a, b Ref) bool {
	x, y := &p.entries[a], &p.entries[b]
	if (x.flags()|y.flags())&(escaped|malformed) != 0 {
		return p.keyText(a) == p.keyText(b)
	}
	return x.end-x.start == y.end-y.start && bytes.Equal(p.raw[x.start:x.end], p.raw[y.start:y.end])
}
