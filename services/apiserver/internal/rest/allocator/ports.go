package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

var errPortTaken = errors.New("provided port is already allocated")

// portError is the index of a port that cannot be allocated, and the reason.
type portError struct {
	index int
	err   error
}

func (e *portError) Error() string { return e.err.Error() }
func (e *portError) Unwrap() error { return e.err }

// ports is the range allocation of node ports.
type ports struct {
	*bits
	span    utilnet.PortRange
	metrics *metrics
}

// newPorts returns the ports stored in b. inUse returns the ports that services have; it may return
// ports outside of the range.
func newPorts(b *bits, span utilnet.PortRange, inUse func(context.Context) ([]int, error), m *metrics) *ports {
	p := &ports{bits: b, span: span, metrics: m}
	b.text = span.String()
	b.seen = func(s *bitSet) { m.portsTaken(s.count(), span.Size) }
	b.rebuild = func(ctx context.Context) (places []int, err error) {
		used, err := inUse(ctx)
		for _, port := range used {
			if at, ok := p.offset(port); ok {
				places = append(places, at)
			}
		}
		return places, err
	}
	return p
}

// offset returns the position of a port, or false if it is out of the range.
func (p *ports) offset(port int) (int, bool) { return port - p.span.Base, p.span.Contains(port) }

// take allocates all wanted ports or none; 0 means any port. It returns them in the same order.
func (p *ports) take(ctx context.Context, wanted []int) ([]int, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	var got []int
	err := p.change(ctx, func(s *bitSet) (err error) {
		got, err = p.pick(s, wanted)
		return err
	})
	p.metrics.ports(wanted, err)
	if err != nil {
		return nil, err
	}
	return got, nil
}

// pick marks the wanted ports as taken and returns them.
func (p *ports) pick(s *bitSet, wanted []int) ([]int, error) {
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

// anyFree returns a free position. It prefers the dynamic band, so that the static band stays free
// for clients that choose their ports (KEP-3668).
func (p *ports) anyFree(s *bitSet) (int, bool) {
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

// free frees ports. It ignores ports that are out of the range or not taken.
func (p *ports) free(ctx context.Context, given []int) error {
	if len(given) == 0 {
		return nil
	}
	return p.change(ctx, func(s *bitSet) error {
		for _, port := range given {
			if at, ok := p.offset(port); ok {
				s.set(at, false)
			}
		}
		return nil
	})
}
