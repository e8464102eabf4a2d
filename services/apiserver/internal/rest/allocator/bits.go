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

// bits is a range allocation. Its state is one value in the store: the range, and a number. Bit i
// of the number, counted from the lowest, is set if position i of the range is taken. Every change
// is a compare-and-swap of that value.
type bits struct {
	store storage.Interface
	key   string
	text  string // the range in stored form
	codec rangeCodec
	// rebuild returns the positions that services have. It is called if the store has no value yet,
	// or one of another range.
	rebuild func(context.Context) ([]int, error)
	// seen, if not nil, is called with each state of the store.
	seen func(*bitSet)

	mu sync.Mutex // held during a change: only replicas compete, requests of one replica queue
	// known is the last known state of the store, in an era of the watch cache. It may be outdated.
	known *bitSet
	era   uint64
	// now returns the current era.
	now func() uint64
}

// bitSet is one version of the state. Revision 0 means not stored yet.
type bitSet struct {
	taken    *big.Int
	revision int64
}

func (s *bitSet) clone() *bitSet {
	return &bitSet{taken: new(big.Int).Set(s.taken), revision: s.revision}
}

func (s *bitSet) set(at int, taken bool) {
	bit := uint(0)
	if taken {
		bit = 1
	}
	s.taken.SetBit(s.taken, at, bit)
}

func (s *bitSet) has(at int) bool { return s.taken.Bit(at) == 1 }

// count returns the number of taken positions.
func (s *bitSet) count() (n int) {
	for i := range s.taken.BitLen() {
		n += int(s.taken.Bit(i))
	}
	return n
}

// maxAttempts is how many write conflicts with other replicas a change retries.
const maxAttempts = 50

// change applies compute to the stored state. An error that was computed from a state that may be
// outdated counts only after the state is confirmed. The same applies if compute changes nothing.
func (b *bits) change(ctx context.Context, compute func(*bitSet) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if era := b.now(); era != b.era { // the store's revision went backwards: the same revision may be another state
		b.known = nil
		b.era = era
	}
	sure := b.known == nil
	for range maxAttempts {
		if b.known == nil {
			live, err := b.load(ctx)
			if err != nil {
				return err
			}
			b.known = live
			sure = true
		}
		next := b.known.clone()
		if err := compute(next); err != nil {
			if sure {
				return err
			}
			b.known = nil
			continue
		}
		if next.taken.Cmp(b.known.taken) == 0 {
			if sure {
				return nil
			}
			b.known = nil
			continue
		}
		err := b.write(ctx, next)
		if err == nil {
			b.keep(next)
			return nil
		}
		b.known = nil
		if !moved(err) {
			return err
		}
	}
	return storage.ErrUnavailable
}

// refresh reads the current state of the store.
func (b *bits) refresh(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	era := b.now() // before the read
	live, err := b.load(ctx)
	if err == nil {
		b.known = live
		b.era = era
	}
	return err
}

// keep records the state of the store.
func (b *bits) keep(s *bitSet) {
	b.known = s
	if b.seen != nil {
		b.seen(s)
	}
}

// moved reports whether a compare-and-swap failed because of another replica's change.
func moved(err error) bool {
	var conflict *storage.ConflictError
	var exists *storage.ExistsError
	return errors.As(err, &conflict) || errors.As(err, &exists) || errors.Is(err, storage.ErrNotFound)
}

// load reads the state. Without a state for this range, it rebuilds the state from the services.
func (b *bits) load(ctx context.Context) (*bitSet, error) {
	s, text, err := b.read(ctx)
	if err != nil || text == b.text {
		return s, err
	}
	used, err := b.rebuild(ctx)
	if err != nil {
		return nil, err
	}
	s.taken = new(big.Int)
	for _, at := range used {
		s.set(at, true)
	}
	return s, nil
}

// read returns the stored state and its range. Without a stored state, the range is empty.
func (b *bits) read(ctx context.Context) (*bitSet, string, error) {
	kv, _, err := b.store.Get(ctx, b.key, 0)
	if errors.Is(err, storage.ErrNotFound) {
		return &bitSet{taken: new(big.Int)}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	r, err := b.codec.decode(kv.Value)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", b.key, err)
	}
	return &bitSet{taken: new(big.Int).SetBytes(r.Data), revision: kv.ModRevision}, r.Range, nil
}

// forget clears a stored state of another range, whose bits stand for other values.
func (b *bits) forget(old *bitSet, text string) {
	if text != "" && text != b.text {
		old.taken = new(big.Int)
	}
}

// empty returns an empty state that replaces the old one.
func (b *bits) empty(old *bitSet) *bitSet {
	return &bitSet{taken: new(big.Int), revision: old.revision}
}

// replace writes a repaired state in place of the old one, whose stored range is text. The caller
// holds mu. If the state has changed since it was read, replace writes nothing and the next repair
// retries.
func (b *bits) replace(ctx context.Context, old, next *bitSet, text string) error {
	if old.revision != 0 && text == b.text && old.taken.Cmp(next.taken) == 0 {
		if b.seen != nil {
			b.seen(next)
		}
		return nil
	}
	b.known = nil
	err := b.write(ctx, next)
	if moved(err) {
		return nil
	}
	if err == nil {
		b.keep(next)
	}
	return err
}

// copyUnused copies positions from old to next that no service has, until they were found so often that
// no service in creation can have them. found holds how often each was found so far. givenUp is the
// number of positions not copied.
func copyUnused(old, next *bitSet, found map[int]int) (now map[int]int, givenUp int) {
	now = map[int]int{}
	for at := range old.taken.BitLen() {
		if !old.has(at) || next.has(at) {
			continue
		}
		times := found[at] + 1
		if times > leakGrace {
			givenUp++
			continue
		}
		now[at] = times
		next.set(at, true)
	}
	return now, givenUp
}

func (b *bits) write(ctx context.Context, s *bitSet) (err error) {
	value, err := b.codec.encode(&corev1.RangeAllocation{Range: b.text, Data: s.taken.Bytes()})
	if err != nil {
		return err
	}
	if s.revision == 0 {
		s.revision, err = b.store.Create(ctx, b.key, value, storage.WriteOptions{})
	} else {
		s.revision, err = b.store.Update(ctx, b.key, value, s.revision, storage.WriteOptions{})
	}
	return err
}

// rangeCodec encodes and decodes range allocations in the stored form of Kubernetes.
type rangeCodec struct{ *protobuf.Serializer }

func newRangeCodec(s *runtime.Scheme) rangeCodec {
	return rangeCodec{protobuf.NewSerializer(s, s)}
}

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
