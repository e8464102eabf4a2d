package allocator

import (
	"encoding/binary"
	"iter"
	"math"
	"math/rand/v2"
	"net/netip"
)

// span is the usable addresses of a range: without the network address and, for IPv4, without the
// broadcast address.
type span struct {
	prefix netip.Prefix
	first  netip.Addr
	size   uint64 // number of addresses, at most 2^64-1
	// static is the number of addresses at the beginning that are preferably left to clients that
	// choose their addresses (KEP-3070).
	static uint64
}

// spanOf returns the span of a range.
func spanOf(p netip.Prefix) span {
	p = p.Masked()
	s := span{prefix: p, first: p.Addr().Next(), size: math.MaxUint64}
	hosts := p.Addr().BitLen() - p.Bits()
	reserved := uint64(1)
	if p.Addr().Is4() {
		reserved = 2
	}
	if hosts < 64 {
		s.size = uint64(1) << hosts
		s.size -= min(s.size, reserved)
	}
	s.static = staticBand(s.size, 16, 256)
	return s
}

// staticBand returns the size of the band that is left to clients that choose values themselves:
// size/part, within bounds (KEP-3070, KEP-3668).
func staticBand(size, part, maximum uint64) uint64 {
	const minimum = 16
	if size <= minimum {
		return 0
	}
	return min(max(size/part, minimum), maximum)
}

func (s span) contains(a netip.Addr) bool {
	if !s.prefix.Contains(a) || s.size == 0 {
		return false
	}
	return a.Compare(s.first) >= 0 && a.Compare(plus(s.first, s.size-1)) <= 0
}

// candidates returns all addresses in the order of attempts: from a random position through the
// dynamic band, then likewise through the static band.
func (s span) candidates() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		_ = around(s.static, s.size-s.static, s.first, yield) && around(0, s.static, s.first, yield)
	}
}

// around yields n addresses from an offset on, beginning at a random one of them. It returns false
// if yield did.
func around(offset, n uint64, base netip.Addr, yield func(netip.Addr) bool) bool {
	if n == 0 {
		return true
	}
	start := rand.Uint64N(n)
	for i := range n {
		at := start + i
		if at >= n || at < start { // wrapped around
			at -= n
		}
		if !yield(plus(base, offset+at)) {
			return false
		}
	}
	return true
}

// plus returns the address n after a. It must exist.
func plus(a netip.Addr, n uint64) netip.Addr {
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	high := binary.BigEndian.Uint64(b[:8])
	low := binary.BigEndian.Uint64(b[8:])
	if low+n < low {
		high++
	}
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low+n)
	return netip.AddrFrom16(b)
}
