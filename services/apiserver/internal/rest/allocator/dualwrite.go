package allocator

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// bitKeys are the keys of the range allocations below the root, in the order of the configured
// ranges.
var bitKeys = []string{"/ranges/serviceips", "/ranges/secondaryserviceips"}

// Maximum sizes of a range allocation: the part of a range that Kubernetes records, and the limit
// of one value in the store.
const (
	maxBitsIPv4 = 1 << 20
	maxBitsIPv6 = 1<<16 - 1
)

// addressBitmap holds the taken addresses of a configured range in the form of servers without
// IPAddress objects. It is written additionally, unless the gate DisableAllocatorDualWrite is on,
// so that no such server in the cluster, now or after a downgrade, allocates the same address to
// another service.
type addressBitmap struct {
	*bitmapAllocator
	addressRange addressRange
	maximum      uint64      // number of positions that are recorded
	leaked       map[int]int // by position: how many repairs in a row found no service for it
}

// newAddressBitmaps returns one addressBitmap for each configured range.
func (a *Allocator) newAddressBitmaps() (out []*addressBitmap) {
	for i, prefix := range a.Prefixes[:min(len(a.Prefixes), len(bitKeys))] {
		bitmap := &addressBitmap{addressRange: addressRangeOf(prefix), maximum: maxBitsIPv6}
		if prefix.Addr().Is4() {
			bitmap.maximum = maxBitsIPv4
		}
		bitmap.bitmapAllocator = &bitmapAllocator{
			store:              a.Store,
			key:                a.Root + bitKeys[i],
			rangeText:          prefix.Masked().String(),
			codec:              newRangeCodec(a.Scheme),
			currentIncarnation: func() uint64 { return a.Cache.Incarnation() },
		}
		bitmap.rebuild = func(ctx context.Context) (positions []int, err error) {
			services, err := (&repairRun{Allocator: a}).currentServices(ctx)
			for _, s := range services {
				positions = append(positions, bitmap.positionsOf(addressesOf(s))...)
			}
			return positions, err
		}
		out = append(out, bitmap)
	}
	return out
}

// positionOf returns the position of an address in the range. It returns false if the range
// allocation does not cover the address.
func (bitmap *addressBitmap) positionOf(addr netip.Addr) (int, bool) {
	if !bitmap.addressRange.contains(addr) {
		return 0, false
	}
	n := offsetBetween(bitmap.addressRange.first, addr)
	return int(n), n < bitmap.maximum
}

// positionsOf returns the positions of the addresses that have one.
func (bitmap *addressBitmap) positionsOf(addrs []netip.Addr) (out []int) {
	for _, addr := range addrs {
		if position, ok := bitmap.positionOf(addr); ok {
			out = append(out, position)
		}
	}
	return out
}

// markTaken marks an address as taken. It returns errAddressTaken if it is taken.
func (bitmap *addressBitmap) markTaken(ctx context.Context, addr netip.Addr) error {
	position, ok := bitmap.positionOf(addr)
	if !ok {
		return nil
	}
	return bitmap.updateState(ctx, func(bits *bitSet) error {
		if bits.isTaken(position) {
			return errAddressTaken
		}
		bits.setPosition(position, true)
		return nil
	})
}

// markFree frees an address. It ignores an address that has no position.
func (bitmap *addressBitmap) markFree(ctx context.Context, addr netip.Addr) error {
	position, ok := bitmap.positionOf(addr)
	if !ok {
		return nil
	}
	return bitmap.updateState(ctx, func(bits *bitSet) error {
		bits.setPosition(position, false)
		return nil
	})
}

// isAllocated reports whether an address is taken in the last known state, which may be outdated.
func (bitmap *addressBitmap) isAllocated(addr netip.Addr) bool {
	position, ok := bitmap.positionOf(addr)
	bitmap.mu.Lock()
	defer bitmap.mu.Unlock()
	return ok && bitmap.cached != nil && bitmap.cached.isTaken(position)
}

// isAllocated reports whether any range allocation contains the address; see
// addressBitmap.isAllocated.
func (a *Allocator) isAllocated(addr netip.Addr) bool {
	return slices.ContainsFunc(a.bitmaps, func(bitmap *addressBitmap) bool { return bitmap.isAllocated(addr) })
}

// refreshBitmaps reads the current state of all ranges.
func (a *Allocator) refreshBitmaps(ctx context.Context) error {
	for _, b := range a.bitmaps {
		if err := b.refreshCached(ctx); err != nil {
			return err
		}
	}
	return nil
}

// allocateOrDelete records an address that has an IPAddress object of a service. If another server
// has the address, allocateOrDelete deletes the object.
func (a *Allocator) allocateOrDelete(ctx context.Context, addr netip.Addr) error {
	err := a.allocateInBitmaps(ctx, addr)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := a.deleteAddress(ctx, addr.String()); err != nil {
			a.Logger.Warn("address is allocated by another server; failed to delete its IPAddress; the next repair deletes it",
				"address", addr, "error", err)
		}
	}
	return err
}

// allocateInBitmaps records an address in the range allocations. It returns errAddressTaken if
// the address is taken there.
func (a *Allocator) allocateInBitmaps(ctx context.Context, addr netip.Addr) error {
	for _, b := range a.bitmaps {
		if err := b.markTaken(ctx, addr); err != nil {
			return err
		}
	}
	return nil
}

// bitmapRanges returns the configured ranges of a family, limited to the part that a range
// allocation covers.
func (a *Allocator) bitmapRanges(family corev1.IPFamily) (out []addressRange) {
	for _, b := range a.bitmaps {
		if familyOf(b.addressRange.first) == family {
			r := b.addressRange
			r.size = min(r.size, b.maximum)
			r.static = staticBand(r.size, 16, 256)
			out = append(out, r)
		}
	}
	return out
}

// allocatedCount returns the number of addresses taken in the last known state.
func (bitmap *addressBitmap) allocatedCount() uint64 {
	bitmap.mu.Lock()
	defer bitmap.mu.Unlock()
	if bitmap.cached == nil {
		return 0
	}
	return uint64(bitmap.cached.takenCount())
}

// releaseFromBitmaps frees an address in the range allocations. It is called before the object is
// deleted.
func (a *Allocator) releaseFromBitmaps(ctx context.Context, addr netip.Addr) error {
	for _, b := range a.bitmaps {
		if err := b.markFree(ctx, addr); err != nil {
			return err
		}
	}
	return nil
}

// rebuildAddressBits rebuilds a range allocation of addresses from the services. The stored
// state is read before the services, so an allocation in between makes the write fail.
func (run *repairRun) rebuildAddressBits(ctx context.Context, bitmap *addressBitmap) error {
	bitmap.mu.Lock()
	defer bitmap.mu.Unlock()
	old, next, storedRange, err := bitmap.beginRepair(ctx)
	if err != nil {
		return err
	}
	services, err := run.currentServices(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		for _, addr := range addressesOf(s) {
			if familyOf(addr) != familyOf(bitmap.addressRange.first) {
				continue
			}
			if run.Bitmap {
				run.reportBit(ctx, bitmap, s, addr, old, next, storedRange == "")
			}
			if position, ok := bitmap.positionOf(addr); ok {
				next.setPosition(position, true)
			}
		}
	}
	var leaked int
	bitmap.leaked, leaked = copyUnused(old, next, bitmap.leaked)
	if run.Bitmap && leaked > 0 {
		run.metrics.addressProblems.WithLabelValues("leak").Add(float64(leaked))
	}
	return bitmap.replaceStored(ctx, old, next, storedRange)
}

// reportBit reports an address of a service that the stored state lacks, that another service has
// in next, or that is out of range. nothingStored means that there was no range allocation.
func (run *repairRun) reportBit(
	ctx context.Context,
	bitmap *addressBitmap,
	service *corev1.Service,
	addr netip.Addr,
	old, next *bitSet,
	nothingStored bool,
) {
	position, isCovered := bitmap.positionOf(addr)
	p := problem{action: "ClusterIPAllocation"}
	family := familyOf(addr)
	switch {
	case !isCovered:
		p.kind = "outOfRange"
		p.reason = "ClusterIPOutOfRange"
		p.note = fmt.Sprintf("Cluster IP [%v]:%s is not within the service CIDR %s; please recreate service",
			family, addr, bitmap.addressRange.prefix)
	case next.isTaken(position):
		p.kind = "duplicate"
		p.reason = "ClusterIPAlreadyAllocated"
		p.note = fmt.Sprintf("Cluster IP [%v]:%s was assigned to multiple services; please recreate service", family, addr)
	case !old.isTaken(position) && !nothingStored:
		p.kind = "repair"
		p.reason = "ClusterIPNotAllocated"
		p.note = fmt.Sprintf("Cluster IP [%v]:%s is not allocated; repairing", family, addr)
	default:
		return
	}
	run.reportProblem(ctx, serviceReference(service), run.metrics.addressProblems, p)
}

// reportUnconfigured reports addresses of families that the cluster has no range for.
func (run *repairRun) reportUnconfigured(ctx context.Context) error {
	services, err := run.currentServices(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		for _, addr := range addressesOf(s) {
			if family := familyOf(addr); !run.hasFamily(family) {
				run.reportProblem(ctx, serviceReference(s), run.metrics.addressProblems, problem{
					kind:   "invalid",
					reason: "ClusterIPNotValid",
					action: "ClusterIPValidation",
					note: fmt.Sprintf("Cluster IP %s(%s) is of ip family that is no longer configured on cluster; please recreate service",
						addr, family),
				})
			}
		}
	}
	return nil
}

// offsetBetween returns the difference between two addresses of a range.
func offsetBetween(from, to netip.Addr) uint64 {
	if from.Is4() {
		a := from.As4()
		b := to.As4()
		return uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(a[:]))
	}
	a := from.As16()
	b := to.As16()
	return binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(a[8:])
}
