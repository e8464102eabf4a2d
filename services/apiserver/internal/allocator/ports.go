package allocator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/services/apiserver/internal/storage"
)

var errPortTaken = errors.New("provided port is already allocated")

// portError says which of the ports wanted cannot be had, and why.
type portError struct {
	index int
	err   error
}

func (e *portError) Error() string { return e.err.Error() }
func (e *portError) Unwrap() error { return e.err }

// ports is the range of node ports. Its state is one value in the store: the
// range, and a number whose bit i, counted from the lowest, tells whether port
// base+i is taken. Every change is a compare-and-swap of that value.
type ports struct {
	store   storage.Interface
	key     string
	span    utilnet.PortRange
	codec   rangeCodec
	metrics *metrics
	// rebuild returns the ports that services have, for a store that has no
	// value yet, or one of another range.
	rebuild func(context.Context) ([]int, error)

	mu sync.Mutex // held across a change: replicas compete, requests of one queue
	// known is what the store had last, in an era of the watch cache; it may be old.
	known *portSet
	era   uint64
	// now is the era.
	now func() uint64
}

// portSet is one version of the state; revision 0 is not stored yet.
type portSet struct {
	taken    *big.Int
	revision int64
}

func (s *portSet) clone() *portSet {
	return &portSet{taken: new(big.Int).Set(s.taken), revision: s.revision}
}

// offset of a port; false when it is out of the range.
func (p *ports) offset(port int) (int, bool) { return port - p.span.Base, p.span.Contains(port) }

func (s *portSet) set(offset int, taken bool) {
	bit := uint(0)
	if taken {
		bit = 1
	}
	s.taken.SetBit(s.taken, offset, bit)
}

func (s *portSet) has(offset int) bool { return s.taken.Bit(offset) == 1 }

// count of the ports taken.
func (s *portSet) count() (n int) {
	for i := range s.taken.BitLen() {
		n += int(s.taken.Bit(i))
	}
	return n
}

// take takes all of the ports wanted or none; 0 means any. It returns them in
// the same order.
func (p *ports) take(ctx context.Context, wanted []int) ([]int, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	var got []int
	err := p.change(ctx, func(s *portSet) (err error) {
		got, err = p.pick(s, wanted)
		return err
	})
	p.metrics.ports(wanted, err)
	if err != nil {
		return nil, err
	}
	return got, nil
}

// pick sets the bits of the ports wanted.
func (p *ports) pick(s *portSet, wanted []int) ([]int, error) {
	got := make([]int, len(wanted))
	for i, port := range wanted {
		var offset int
		if port == 0 {
			free, ok := p.anyFree(s)
			if !ok {
				return nil, &portError{i, errFull}
			}
			offset = free
		} else {
			at, ok := p.offset(port)
			switch {
			case !ok:
				return nil, &portError{i, fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", p.span.String())}
			case s.has(at):
				return nil, &portError{i, errPortTaken}
			}
			offset = at
		}
		s.set(offset, true)
		got[i] = p.span.Base + offset
	}
	return got, nil
}

// anyFree finds a free port: in the dynamic band as long as there is one, so that
// those who choose for themselves find the static band free (KEP-3668).
func (p *ports) anyFree(s *portSet) (int, bool) {
	static := int(staticBand(uint64(p.span.Size), 32, 128))
	for _, band := range [][2]int{{static, p.span.Size - static}, {0, static}} {
		from, n := band[0], band[1]
		if n == 0 {
			continue
		}
		start := rand.IntN(n)
		for i := range n {
			if at := from + (start+i)%n; !s.has(at) {
				return at, true
			}
		}
	}
	return 0, false
}

// free gives ports back. Those out of the range, and those that are not taken,
// do not matter.
func (p *ports) free(ctx context.Context, given []int) error {
	if len(given) == 0 {
		return nil
	}
	return p.change(ctx, func(s *portSet) error {
		for _, port := range given {
			if at, ok := p.offset(port); ok {
				s.set(at, false)
			}
		}
		return nil
	})
}

// maxPortAttempts bounds how often a change starts anew because another replica
// was quicker.
const maxPortAttempts = 50

// change computes the next state from the one that is stored. A refusal that
// was found on a state which may be old counts only once it is confirmed.
func (p *ports) change(ctx context.Context, compute func(*portSet) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if era := p.now(); era != p.era { // the store went back, and may tell the same revision of something else
		p.known, p.era = nil, era
	}
	sure := p.known == nil
	for range maxPortAttempts {
		if p.known == nil {
			live, err := p.load(ctx)
			if err != nil {
				return err
			}
			p.known, sure = live, true
		}
		next := p.known.clone()
		if err := compute(next); err != nil {
			if sure {
				return err
			}
			p.known = nil
			continue
		}
		if next.taken.Cmp(p.known.taken) == 0 {
			return nil
		}
		err := p.write(ctx, next)
		if err == nil {
			p.known = next
			p.metrics.portsTaken(next.count(), p.span.Size)
			return nil
		}
		p.known = nil
		if !moved(err) {
			return err
		}
	}
	return storage.ErrUnavailable
}

// moved tells of a compare-and-swap that another replica won.
func moved(err error) bool {
	var conflict *storage.ConflictError
	var exists *storage.ExistsError
	return errors.As(err, &conflict) || errors.As(err, &exists) || errors.Is(err, storage.ErrNotFound)
}

// load reads the state, or makes it from the services where there is none for
// this range.
func (p *ports) load(ctx context.Context) (*portSet, error) {
	s, span, err := p.read(ctx)
	if err != nil || span == p.span.String() {
		return s, err
	}
	used, err := p.rebuild(ctx)
	if err != nil {
		return nil, err
	}
	s.taken = new(big.Int)
	for _, port := range used {
		if at, ok := p.offset(port); ok {
			s.set(at, true)
		}
	}
	return s, nil
}

// read returns the stored state and its range; none is an empty range.
func (p *ports) read(ctx context.Context) (*portSet, string, error) {
	kv, _, err := p.store.Get(ctx, p.key, 0)
	if errors.Is(err, storage.ErrNotFound) {
		return &portSet{taken: new(big.Int)}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	r, err := p.codec.decode(kv.Value)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", p.key, err)
	}
	return &portSet{taken: new(big.Int).SetBytes(r.Data), revision: kv.ModRevision}, r.Range, nil
}

func (p *ports) write(ctx context.Context, s *portSet) (err error) {
	value, err := p.codec.encode(&corev1.RangeAllocation{Range: p.span.String(), Data: s.taken.Bytes()})
	if err != nil {
		return err
	}
	if s.revision == 0 {
		s.revision, err = p.store.Create(ctx, p.key, value, storage.WriteOptions{})
	} else {
		s.revision, err = p.store.Update(ctx, p.key, value, s.revision, storage.WriteOptions{})
	}
	return err
}

// rangeCodec reads and writes range allocations as Kubernetes stores them.
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
