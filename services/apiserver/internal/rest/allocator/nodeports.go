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
// All or none of them are allocated. It records in res which ports were acquired and which are no
// longer needed.
func (a *Allocator) claimPorts(ctx context.Context, res *reservation, old *corev1.Service, dryRun bool) error {
	service := res.service
	var oldPorts []int
	if old != nil {
		oldPorts = portsOf(old)
	}
	// 1. Collect the ports that the service needs and does not have.
	var requests []portRequest
	copyToFollowers := func() {}
	if hasNodePorts(service) {
		requests, copyToFollowers = portRequestsOf(service, oldPorts, old == nil)
	}
	if hasHealthCheck(service) && !slices.Contains(oldPorts, int(service.Spec.HealthCheckNodePort)) {
		requests = append(requests, portRequest{
			port:  int(service.Spec.HealthCheckNodePort),
			path:  field.NewPath("spec", "healthCheckNodePort"),
			label: "HealthCheck NodePort",
			set:   func(n int32) { service.Spec.HealthCheckNodePort = n },
		})
	}
	desired := make([]int, len(requests))
	for i, request := range requests {
		desired[i] = request.port
	}
	// 2. Allocate them, and set them in the service.
	allocate := a.ports.allocateAll
	if dryRun {
		allocate = a.ports.allocateDryRun
	}
	allocated, err := allocate(ctx, desired)
	if err != nil {
		return portFieldError(service, requests, err)
	}
	for i, request := range requests {
		request.set(int32(allocated[i]))
	}
	copyToFollowers()
	res.acquired.ports = allocated
	// 3. Release those that the service had and no longer has.
	kept := portsOf(service)
	for _, port := range oldPorts {
		// A service of a type without node ports loses its ports.
		if !hasNodePorts(service) || !slices.Contains(kept, port) {
			res.released.ports = append(res.released.ports, port)
		}
	}
	return nil
}

// portFieldError converts an allocation error to the error of the field that requested the port.
func portFieldError(service *corev1.Service, requests []portRequest, err error) error {
	var portErr *portError
	if !errors.As(err, &portErr) {
		return err
	}
	request := requests[portErr.index]
	if errors.Is(err, errRangeFull) {
		return exhaustedError(request.label, err)
	}
	return invalidError(service, field.Invalid(request.path, request.port, portErr.err.Error()))
}

// portRequestsOf returns the ports to allocate for a service's ports, in addition to those it had.
// All ports of a new service that have the same number get one node port, unless the client requests
// otherwise: the first such port is the leader, and copyToFollowers copies its node port to the others
// after the allocation.
func portRequestsOf(service *corev1.Service, oldPorts []int, creating bool) (requests []portRequest, copyToFollowers func()) {
	type follower struct{ port, leader *corev1.ServicePort }
	var followers []follower
	leaders := map[int32]*corev1.ServicePort{} // the first port of each number
	requested := map[int]bool{}
	for i := range service.Spec.Ports {
		servicePort := &service.Spec.Ports[i]
		if servicePort.NodePort == 0 && !wantsNodePorts(service) {
			continue
		}
		leader := leaders[servicePort.Port]
		if creating && leader == nil {
			leaders[servicePort.Port] = servicePort
			if servicePort.NodePort == 0 {
				servicePort.NodePort = requestedNodePort(service, servicePort.Port)
			}
		}
		switch {
		case creating && leader != nil && servicePort.NodePort == 0: // gets the leader's node port
			followers = append(followers, follower{servicePort, leader})
			continue
		case creating && leader != nil && servicePort.NodePort == leader.NodePort: // the leader's request covers it
			continue
		case slices.Contains(oldPorts, int(servicePort.NodePort)): // the service has it already
			continue
		case !creating && servicePort.NodePort != 0 && requested[int(servicePort.NodePort)]: // an earlier port requests it
			continue
		}
		requested[int(servicePort.NodePort)] = true
		requests = append(requests, portRequest{
			port:  int(servicePort.NodePort),
			path:  field.NewPath("spec", "ports").Index(i).Child("nodePort"),
			label: "nodePort",
			set:   func(n int32) { servicePort.NodePort = n },
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
func requestedNodePort(service *corev1.Service, port int32) int32 {
	for i := range service.Spec.Ports {
		if p := &service.Spec.Ports[i]; p.Port == port && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

// allocateDryRun returns ports as allocateAll does, but records nothing. It does not check whether a
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
	result := &nodePortBitmap{bitmapAllocator: b, portRange: portRange, metrics: m}
	b.rangeText = portRange.String()
	b.observe = func(bits *bitSet) { m.setPortUsage(bits.takenCount(), portRange.Size) }
	b.rebuild = func(ctx context.Context) (positions []int, err error) {
		used, err := inUse(ctx)
		for _, port := range used {
			if position, ok := result.positionOf(port); ok {
				positions = append(positions, position)
			}
		}
		return positions, err
	}
	return result
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
	var allocated []int
	err := p.updateState(ctx, func(bits *bitSet) (err error) {
		allocated, err = p.allocateIn(bits, desired)
		return err
	})
	p.metrics.observePorts(desired, err)
	if err != nil {
		return nil, err
	}
	return allocated, nil
}

// allocateIn sets the desired ports in bits and returns the ports. Port 0 means any free port.
func (p *nodePortBitmap) allocateIn(bits *bitSet, desired []int) ([]int, error) {
	allocated := make([]int, len(desired))
	for i, port := range desired {
		position, err := p.freePosition(bits, port)
		if err != nil {
			return nil, &portError{index: i, err: err}
		}
		bits.setPosition(position, true)
		allocated[i] = p.portRange.Base + position
	}
	return allocated, nil
}

// freePosition returns the position of a port, or any free position for port 0. It returns an error
// if there is none.
func (p *nodePortBitmap) freePosition(bits *bitSet, port int) (int, error) {
	if port == 0 {
		position, ok := p.anyFree(bits)
		if !ok {
			return 0, errRangeFull
		}
		return position, nil
	}
	position, ok := p.positionOf(port)
	if !ok {
		return 0, fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", p.portRange.String())
	}
	if bits.isTaken(position) {
		return 0, errPortTaken
	}
	return position, nil
}

// anyFree returns a free position. It prefers the dynamic band, so that the static band stays free
// for clients that choose their ports (KEP-3668).
func (p *nodePortBitmap) anyFree(bits *bitSet) (int, bool) {
	const part, maximum = 32, 128 // from KEP-3668
	static := int(staticBand(uint64(p.portRange.Size), part, maximum))
	for _, band := range [][2]int{{static, p.portRange.Size - static}, {0, static}} {
		from, n := band[0], band[1]
		if n == 0 {
			continue
		}
		start := rand.IntN(n)
		for i := range n {
			if position := from + (start+i)%n; !bits.isTaken(position) {
				return position, true
			}
		}
	}
	return 0, false
}

// releaseAll frees ports. It ignores ports that are out of the range or not taken.
func (p *nodePortBitmap) releaseAll(ctx context.Context, ports []int) error {
	if len(ports) == 0 {
		return nil
	}
	return p.updateState(ctx, func(bits *bitSet) error {
		for _, port := range ports {
			if position, ok := p.positionOf(port); ok {
				bits.setPosition(position, false)
			}
		}
		return nil
	})
}
