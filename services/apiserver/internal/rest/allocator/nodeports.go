package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// portRequest is a port that a service needs, and the field that receives it.
type portRequest struct {
	port  int // 0 for any
	path  *field.Path
	label string // name in the error of an exhausted range
	set   func(int32)
}

// claimPorts allocates all node ports that a service lacks in one change of the range allocation.
// All or none of them are allocated. It records in c which ports were acquired and which are no
// longer needed.
func (a *Allocator) claimPorts(ctx context.Context, c *reservation, old *corev1.Service, dryRun bool) error {
	s := c.service
	var oldPorts []int
	if old != nil {
		oldPorts = portsOf(old)
	}
	var requests []portRequest
	copyToFollowers := func() {}
	if hasNodePorts(s) {
		requests, copyToFollowers = portRequestsOf(s, oldPorts, old == nil)
	}
	if hasHealthCheck(s) && !slices.Contains(oldPorts, int(s.Spec.HealthCheckNodePort)) {
		requests = append(requests, portRequest{
			port:  int(s.Spec.HealthCheckNodePort),
			path:  field.NewPath("spec", "healthCheckNodePort"),
			label: "HealthCheck NodePort",
			set:   func(n int32) { s.Spec.HealthCheckNodePort = n },
		})
	}
	desired := make([]int, len(requests))
	for i, w := range requests {
		desired[i] = w.port
	}
	take := a.ports.allocateAll
	if dryRun {
		take = a.ports.allocateDryRun
	}
	got, err := take(ctx, desired)
	if err != nil {
		return portFieldError(s, requests, err)
	}
	for i, w := range requests {
		w.set(int32(got[i]))
	}
	copyToFollowers()
	c.acquired.ports = got
	now := portsOf(s)
	for _, port := range oldPorts {
		// A service of a type without node ports loses its ports.
		if !hasNodePorts(s) || !slices.Contains(now, port) {
			c.released.ports = append(c.released.ports, port)
		}
	}
	return nil
}

// portFieldError converts an allocation error to the error of the field that requested the port.
func portFieldError(s *corev1.Service, requests []portRequest, err error) error {
	var p *portError
	if !errors.As(err, &p) {
		return err
	}
	w := requests[p.index]
	if errors.Is(err, errRangeFull) {
		return exhaustedError(w.label, err)
	}
	return invalidError(s, field.Invalid(w.path, w.port, p.err.Error()))
}

// portRequestsOf returns the ports to allocate for a service's ports, in addition to those it had.
// A new service gets one node port for all its ports with the same number, independent of the
// protocol, unless the client requests otherwise. copyToFollowers copies the port to them after the
// allocation.
func portRequestsOf(s *corev1.Service, oldPorts []int, creating bool) (requests []portRequest, copyToFollowers func()) {
	type follower struct{ port, leader *corev1.ServicePort }
	var followers []follower
	leaders := map[int32]*corev1.ServicePort{} // by port
	requested := map[int]bool{}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.NodePort == 0 && !wantsNodePorts(s) {
			continue
		}
		leader := leaders[p.Port]
		if creating && leader == nil {
			leaders[p.Port] = p
			if p.NodePort == 0 {
				p.NodePort = requestedNodePort(s, p.Port)
			}
		}
		switch {
		case creating && leader != nil && p.NodePort == 0:
			followers = append(followers, follower{p, leader})
			continue
		case creating && leader != nil && p.NodePort == leader.NodePort:
			continue
		case slices.Contains(oldPorts, int(p.NodePort)):
			continue
		case !creating && p.NodePort != 0 && requested[int(p.NodePort)]:
			continue
		}
		requested[int(p.NodePort)] = true
		requests = append(requests, portRequest{
			port:  int(p.NodePort),
			path:  field.NewPath("spec", "ports").Index(i).Child("nodePort"),
			label: "nodePort",
			set:   func(n int32) { p.NodePort = n },
		})
	}
	return requests, func() {
		for _, f := range followers {
			f.port.NodePort = f.leader.NodePort
		}
	}
}

// requestedNodePort returns the node port that the client chose for any of the ports with a given
// number.
func requestedNodePort(s *corev1.Service, port int32) int32 {
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Port == port && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

// allocateDryRun returns ports as allocate does, but records nothing. It does not check whether a
// port is free, because that may change before the real write.
func (p *nodePortBitmap) allocateDryRun(_ context.Context, desired []int) ([]int, error) {
	return p.allocateIn(&bitSet{taken: new(big.Int)}, desired)
}

var errPortTaken = errors.New("provided port is already allocated")

// portError is the index of a port that cannot be allocated, and the reason.
type portError struct {
	index int
	err   error
}

func (e *portError) Error() string { return e.err.Error() }
func (e *portError) Unwrap() error { return e.err }

// nodePortBitmap is the range allocation of node ports.
type nodePortBitmap struct {
	*bitmapAllocator
	portRange utilnet.PortRange
	metrics   *metrics
}

// newNodePortBitmap returns the ports stored in b. inUse returns the ports that services have; it
// may return ports outside of the range.
func newNodePortBitmap(
	b *bitmapAllocator,
	portRange utilnet.PortRange,
	inUse func(context.Context) ([]int, error),
	m *metrics,
) *nodePortBitmap {
	p := &nodePortBitmap{bitmapAllocator: b, portRange: portRange, metrics: m}
	b.rangeText = portRange.String()
	b.observe = func(s *bitSet) { m.setPortUsage(s.takenCount(), portRange.Size) }
	b.rebuild = func(ctx context.Context) (positions []int, err error) {
		used, err := inUse(ctx)
		for _, port := range used {
			if position, ok := p.positionOf(port); ok {
				positions = append(positions, position)
			}
		}
		return positions, err
	}
	return p
}

// positionOf returns the position of a port. It returns false if the port is out of the range.
func (p *nodePortBitmap) positionOf(port int) (int, bool) {
	return port - p.portRange.Base, p.portRange.Contains(port)
}

// allocateAll allocates all desired ports or none; 0 means any port. It returns them in the same
// order.
func (p *nodePortBitmap) allocateAll(ctx context.Context, desired []int) ([]int, error) {
	if len(desired) == 0 {
		return nil, nil
	}
	var got []int
	err := p.updateState(ctx, func(s *bitSet) (err error) {
		got, err = p.allocateIn(s, desired)
		return err
	})
	p.metrics.observePorts(desired, err)
	if err != nil {
		return nil, err
	}
	return got, nil
}

// allocateIn sets the bits of the desired ports in s and returns the ports.
func (p *nodePortBitmap) allocateIn(s *bitSet, desired []int) ([]int, error) {
	got := make([]int, len(desired))
	for i, port := range desired {
		var offset int
		if port == 0 {
			free, ok := p.anyFree(s)
			if !ok {
				return nil, &portError{i, errRangeFull}
			}
			offset = free
		} else {
			position, ok := p.positionOf(port)
			switch {
			case !ok:
				return nil, &portError{
					i,
					fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", p.portRange.String()),
				}
			case s.isTaken(position):
				return nil, &portError{i, errPortTaken}
			}
			offset = position
		}
		s.setPosition(offset, true)
		got[i] = p.portRange.Base + offset
	}
	return got, nil
}

// anyFree returns a free position. It prefers the dynamic band, so that the static band stays free
// for clients that choose their ports (KEP-3668).
func (p *nodePortBitmap) anyFree(s *bitSet) (int, bool) {
	static := int(staticBand(uint64(p.portRange.Size), 32, 128))
	for _, band := range [][2]int{{static, p.portRange.Size - static}, {0, static}} {
		from, n := band[0], band[1]
		if n == 0 {
			continue
		}
		start := rand.IntN(n)
		for i := range n {
			if position := from + (start+i)%n; !s.isTaken(position) {
				return position, true
			}
		}
	}
	return 0, false
}

// releaseAll frees ports. It ignores ports that are out of the range or not taken.
func (p *nodePortBitmap) releaseAll(ctx context.Context, specified []int) error {
	if len(specified) == 0 {
		return nil
	}
	return p.updateState(ctx, func(s *bitSet) error {
		for _, port := range specified {
			if position, ok := p.positionOf(port); ok {
				s.setPosition(position, false)
			}
		}
		return nil
	})
}
