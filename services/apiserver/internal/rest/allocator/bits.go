package allocator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"binnacle/services/apiserver/internal/storage"
)

// bitmapAllocator stores a range allocation. Its stored value is a RangeAllocation: the text of the
// range, and a big-endian number. Bit i of the number, counted from the lowest, is set if position
// i of the range is taken. Every change is a compare-and-swap of that value.
type bitmapAllocator struct {
	store     storage.Interface
	key       string
	rangeText string // the range in stored form
	codec     rangeCodec
	// rebuild returns the positions that existing services hold. It is called if the store has no
	// value yet, or the value of another range.
	rebuild func(context.Context) ([]int, error)
	// observe, if not nil, is called with each state that was read from or written to the store.
	observe func(*bitSet)

	mu sync.Mutex // held during a change: only replicas compete, requests of one replica queue
	// cached is the last known state of the store, in an incarnation of the watch cache. It may be
	// outdated.
	cached      *bitSet
	incarnation uint64
	// currentIncarnation returns the current incarnation.
	currentIncarnation func() uint64
}

// bitSet is one version of the state. Revision 0 means not stored yet.
type bitSet struct {
	taken    *big.Int
	revision int64
}

func (bits *bitSet) clone() *bitSet {
	return &bitSet{taken: new(big.Int).Set(bits.taken), revision: bits.revision}
}

// setPosition marks a position as taken or free.
func (bits *bitSet) setPosition(position int, isTaken bool) {
	bit := uint(0)
	if isTaken {
		bit = 1
	}
	bits.taken.SetBit(bits.taken, position, bit)
}

// isTaken reports whether a position is taken.
func (bits *bitSet) isTaken(position int) bool { return bits.taken.Bit(position) == 1 }

// takenCount returns the number of taken positions.
func (bits *bitSet) takenCount() (n int) {
	for i := range bits.taken.BitLen() {
		n += int(bits.taken.Bit(i))
	}
	return n
}

// maxAttempts is how many write conflicts with other replicas a change retries.
const maxAttempts = 50

// updateState applies compute to the state and writes the result. It starts with the cached state,
// which may be outdated. If compute then fails or changes nothing, updateState reads the state from
// the store and calls compute again. After maxAttempts it returns storage.ErrUnavailable.
func (b *bitmapAllocator) updateState(ctx context.Context, compute func(*bitSet) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	// After the store's revision went backwards, the same revision may be another state.
	if incarnation := b.currentIncarnation(); incarnation != b.incarnation {
		b.cached = nil
		b.incarnation = incarnation
	}
	isCurrent := b.cached == nil // the state was read from the store, so it is not outdated
	for range maxAttempts {
		// 1. Take the cached state, or read it.
		if b.cached == nil {
			live, err := b.loadState(ctx)
			if err != nil {
				return err
			}
			b.cached = live
			isCurrent = true
		}
		// 2. Compute the next state. If there is nothing to write, compute it again from a current state.
		next := b.cached.clone()
		err := compute(next)
		if err != nil || next.taken.Cmp(b.cached.taken) == 0 {
			if isCurrent {
				return err
			}
			b.cached = nil
			continue
		}
		// 3. Write it. After a conflict with another replica, start again.
		err = b.writeState(ctx, next)
		if err == nil {
			b.setCached(next)
			return nil
		}
		b.cached = nil
		if !isConflict(err) {
			return err
		}
	}
	return storage.ErrUnavailable
}

// refreshCached reads the current state of the store.
func (b *bitmapAllocator) refreshCached(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	incarnation := b.currentIncarnation() // before the read
	live, err := b.loadState(ctx)
	if err == nil {
		b.cached = live
		b.incarnation = incarnation
	}
	return err
}

// setCached records the state of the store.
func (b *bitmapAllocator) setCached(bits *bitSet) {
	b.cached = bits
	if b.observe != nil {
		b.observe(bits)
	}
}

// isConflict reports whether err, the error of a compare-and-swap, means that another replica has
// changed, created or deleted the value.
func isConflict(err error) bool {
	var conflict *storage.ConflictError
	var exists *storage.ExistsError
	return errors.As(err, &conflict) || errors.As(err, &exists) || errors.Is(err, storage.ErrNotFound)
}

// loadState reads the state. Without a state for this range, it rebuilds the state from the
// services.
func (b *bitmapAllocator) loadState(ctx context.Context) (*bitSet, error) {
	bits, storedRange, err := b.readStored(ctx)
	if err != nil || storedRange == b.rangeText {
		return bits, err
	}
	positions, err := b.rebuild(ctx)
	if err != nil {
		return nil, err
	}
	bits.taken = new(big.Int)
	for _, position := range positions {
		bits.setPosition(position, true)
	}
	return bits, nil
}

// readStored returns the stored state and its range. Without a stored state, the range is empty.
func (b *bitmapAllocator) readStored(ctx context.Context) (*bitSet, string, error) {
	stored, _, err := b.store.Get(ctx, b.key, 0)
	if errors.Is(err, storage.ErrNotFound) {
		return &bitSet{taken: new(big.Int)}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	r, err := b.codec.decode(stored.Value)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", b.key, err)
	}
	return &bitSet{taken: new(big.Int).SetBytes(r.Data), revision: stored.ModRevision}, r.Range, nil
}

// beginRepair returns the stored state, an empty state that replaces it, and the stored range,
// which is empty if nothing is stored. The old state is empty if it belongs to another range, because
// its bits stand for other values.
func (b *bitmapAllocator) beginRepair(ctx context.Context) (old, next *bitSet, storedRange string, err error) {
	old, storedRange, err = b.readStored(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	if storedRange != b.rangeText {
		old.taken = new(big.Int)
	}
	return old, &bitSet{taken: new(big.Int), revision: old.revision}, storedRange, nil
}

// replaceStored writes a repaired state in place of the old one, whose range is storedRange. The
// caller holds mu. If the state has changed since beginRepair, it writes nothing, and the next
// repair retries.
func (b *bitmapAllocator) replaceStored(ctx context.Context, old, next *bitSet, storedRange string) error {
	if old.revision != 0 && storedRange == b.rangeText && old.taken.Cmp(next.taken) == 0 {
		if b.observe != nil {
			b.observe(next)
		}
		return nil
	}
	b.cached = nil
	err := b.writeState(ctx, next)
	if isConflict(err) {
		return nil
	}
	if err == nil {
		b.setCached(next)
	}
	return err
}

// copyUnused copies taken positions that no service holds from old to next, because a service that
// is being created may hold them. It drops positions that leakGrace earlier repairs found unused,
// and returns their number. sightings holds how many repairs in a row found each position unused;
// copyUnused returns the counts for the next repair.
func copyUnused(old, next *bitSet, sightings map[int]int) (counts map[int]int, dropped int) {
	counts = map[int]int{}
	for position := range old.taken.BitLen() {
		if !old.isTaken(position) || next.isTaken(position) {
			continue
		}
		times := sightings[position] + 1
		if times > leakGrace {
			dropped++
			continue
		}
		counts[position] = times
		next.setPosition(position, true)
	}
	return counts, dropped
}

// writeState writes a state with a compare-and-swap and sets its new revision.
func (b *bitmapAllocator) writeState(ctx context.Context, bits *bitSet) (err error) {
	value, err := b.codec.encode(&corev1.RangeAllocation{Range: b.rangeText, Data: bits.taken.Bytes()})
	if err != nil {
		return err
	}
	if bits.revision == 0 {
		bits.revision, err = b.store.Create(ctx, b.key, value, storage.WriteOptions{})
	} else {
		bits.revision, err = b.store.Update(ctx, b.key, value, bits.revision, storage.WriteOptions{})
	}
	return err
}

// rangeCodec encodes and decodes range allocations in the stored form of Kubernetes.
type rangeCodec struct{ *protobuf.Serializer }

func newRangeCodec(s *runtime.Scheme) rangeCodec {
	return rangeCodec{protobuf.NewSerializer(s, s)}
}

// encode returns the stored form of a range allocation.
func (c rangeCodec) encode(r *corev1.RangeAllocation) ([]byte, error) {
	r.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("RangeAllocation"))
	var b bytes.Buffer
	err := c.Encode(r, &b)
	return b.Bytes(), err
}

func (c rangeCodec) decode(b []byte) (*corev1.RangeAllocation, error) {
	r := &corev1.RangeAllocation{}
	_, _, err := c.Decode(b, nil, r)
	return r, err
}
