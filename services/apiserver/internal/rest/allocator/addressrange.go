package allocator

import (
	"encoding/binary"
	"iter"
	"math"
	"math/rand/v2"
	"net/netip"
)

// addressRange is the set of addresses of a prefix that can be allocated. It excludes the network
// address and, for IPv4, the broadcast address.
type addressRange struct {
	prefix netip.Prefix
	first  netip.Addr
	size   uint64 // number of addresses, at most 2^64-1
	// static is the number of addresses at the beginning that the allocator uses last, so that they
	// stay free for clients that choose their addresses (KEP-3070).
	static uint64
}

// addressRangeOf returns the addresses of a prefix that can be allocated.
func addressRangeOf(prefix netip.Prefix) addressRange {
	prefix = prefix.Masked()
	r := addressRange{prefix: prefix, first: prefix.Addr().Next(), size: math.MaxUint64}
	hostBits := prefix.Addr().BitLen() - prefix.Bits()
	reserved := uint64(1) // the network address
	if prefix.Addr().Is4() {
		reserved = 2 // and the broadcast address
	}
	if hostBits < 64 {
		r.size = uint64(1) << hostBits
		r.size -= min(r.size, reserved)
	}
	r.static = staticBand(r.size, 16, 256)
	return r
}

// staticBand returns the size of the band that stays free for clients that choose values
// themselves: size/part, but at least 16 and at most maximum (KEP-3070, KEP-3668). A range of 16
// values or fewer has no such band.
func staticBand(size, part, maximum uint64) uint64 {
	const minimum = 16
	if size <= minimum {
		return 0
	}
	return min(max(size/part, minimum), maximum)
}

// contains reports whether an address can be allocated from the range.
func (r addressRange) contains(addr netip.Addr) bool {
	if !r.prefix.Contains(addr) || r.size == 0 {
		return false
	}
	return addr.Compare(r.first) >= 0 && addr.Compare(addressAfter(r.first, r.size-1)) <= 0
}

// candidates returns all addresses in the order in which the allocator tries them: first the
// addresses of the dynamic band, then the addresses of the static band, each band from a random
// position on.
func (r addressRange) candidates() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		_ = fromRandom(r.static, r.size-r.static, r.first, yield) && fromRandom(0, r.static, r.first, yield)
	}
}

// fromRandom yields the n addresses from base+offset on, beginning at a random one of them. It
// returns false if yield returned false.
func fromRandom(offset, size uint64, base netip.Addr, yield func(netip.Addr) bool) bool {
	if size == 0 {
		return true
	}
	start := rand.Uint64N(size)
	for i := range size {
		index := start + i
		if index >= size || index < start { // wrapped around
			index -= size
		}
		if !yield(addressAfter(base, offset+index)) {
			return false
		}
	}
	return true
}

// addressAfter returns the address n after a. It must exist.
func addressAfter(addr netip.Addr, count uint64) netip.Addr {
	if addr.Is4() {
		bytes := addr.As4()
		binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])+uint32(count))
		return netip.AddrFrom4(bytes)
	}
	bytes := addr.As16()
	high := binary.BigEndian.Uint64(bytes[:8])
	low := binary.BigEndian.Uint64(bytes[8:])
	if low+count < low { // the sum overflows: carry
		high++
	}
	binary.BigEndian.PutUint64(bytes[:8], high)
	binary.BigEndian.PutUint64(bytes[8:], low+count)
	return netip.AddrFrom16(bytes)
}
