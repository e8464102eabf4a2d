package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

var errPortTaken = errors.New("provided port is already allocated")

// portError says which of the ports wanted cannot be had, and why.
type portError struct {
	index int
	err   error
}

func (e *portError) Error() string { return e.err.Error() }
func (e *portError) Unwrap() error { return e.err }

// ports is the range of node ports.
type ports struct {
	*bits
	span    utilnet.PortRange
	metrics *metrics
}

// newPorts makes the range of what keeps it. inUse returns the ports that services
// have, and perhaps others.
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

// offset of a port; false when it is out of the range.
func (p *ports) offset(port int) (int, bool) { return port - p.span.Base, p.span.Contains(port) }

// take takes all of the ports wanted or none; 0 means any. It returns them in
// the same order.
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

// pick sets the bits of the ports wanted.
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

// anyFree finds a free port: in the dynamic band as long as there is one, so that
// those who choose for themselves find the static band free (KEP-3668).
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

// free gives ports back. Those out of the range, and those that are not taken,
// do not matter.
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
