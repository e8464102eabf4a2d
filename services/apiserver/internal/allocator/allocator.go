package allocator

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/loopback"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/storage"
)

// Cache tells when what it shows is the newest state.
type Cache interface {
	MostRecent(ctx context.Context) (int64, error)
	// Era grows when the store turns out to have gone back.
	Era() uint64
}

// Config is what an Allocator works with.
type Config struct {
	// API is the server's own resource API, which addresses are written through.
	API   *loopback.Client
	Store storage.Interface
	Root  string // that all keys stand below, without a slash at its end
	Cache Cache
	// Services, Addresses and Ranges show the objects of the cluster.
	Services  View[*corev1.Service]
	Addresses View[*networkingv1.IPAddress]
	Ranges    View[*networkingv1.ServiceCIDR]
	// Prefixes are the configured ranges, one for each family at most; the
	// first one's family is the default.
	Prefixes []netip.Prefix
	Ports    utilnet.PortRange
	// DualWrite keeps the addresses of Prefixes as servers without IPAddress objects
	// do, besides.
	DualWrite bool
	// Bitmap keeps addresses in range allocations alone, as Kubernetes does without
	// the gate MultiCIDRServiceAllocator. Services then get addresses of Prefixes,
	// and IPAddress and ServiceCIDR objects have no effect.
	Bitmap bool
	// Scheme knows the type of the range allocation.
	Scheme *runtime.Scheme
	// Identity names this replica in events.
	Identity   string
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Allocator gives out addresses and node ports. Its methods are safe for
// concurrent use.
type Allocator struct {
	Config
	ports   *ports
	bits    []*addressBits
	metrics *metrics
	repairs repairs
}

// New makes an Allocator.
func New(c Config) *Allocator {
	a := &Allocator{Config: c}
	a.metrics = newMetrics(c.Registerer, a.usage)
	a.ports = newPorts(&bits{
		store: c.Store, key: c.Root + "/ranges/servicenodeports", codec: newRangeCodec(c.Scheme),
		now: func() uint64 { return c.Cache.Era() },
	}, c.Ports, a.portsInUse, a.metrics)
	if c.DualWrite || c.Bitmap {
		a.bits = a.addressBitsOf()
	}
	return a
}

// Complete fills in what a service gets without anything being taken: what an
// update leaves out that the live service has, address families and their
// policy. old is nil at creation.
func (a *Allocator) Complete(obj, old registry.Object) field.ErrorList {
	s, was := obj.(*corev1.Service), (*corev1.Service)(nil)
	if old != nil {
		was = old.(*corev1.Service)
		keepAllocated(s, was)
	}
	syncAddresses(s, was)
	return a.completeFamilies(s, was)
}

// Claim is what an object takes by being written, and what it gives up. One of
// its methods has to be called, once.
type Claim struct {
	a           *Allocator
	service     *corev1.Service
	taken, left holdings
}

// holdings are addresses and ports.
type holdings struct {
	addresses []netip.Addr
	ports     []int
}

// Keep is called when the object was written: it gives up what it no longer
// needs.
func (c *Claim) Keep(ctx context.Context) { c.a.giveBack(ctx, c.service, c.left) }

// Drop is called when the object was not written.
func (c *Claim) Drop(ctx context.Context) { c.a.giveBack(ctx, c.service, c.taken) }

// Allocate takes the addresses and ports that a service lacks, and writes them
// into it. old is nil at creation. A dry run takes nothing.
func (a *Allocator) Allocate(ctx context.Context, obj, old registry.Object, dryRun bool) (*Claim, error) {
	s := obj.(*corev1.Service)
	c := &Claim{a: a, service: s}
	var was *corev1.Service
	if old != nil {
		was = old.(*corev1.Service)
	}
	err := a.claimAddresses(ctx, c, was, dryRun)
	if err == nil {
		err = a.claimPorts(ctx, c, was, dryRun)
	}
	if dryRun {
		c.taken, c.left = holdings{}, holdings{}
	}
	if err != nil {
		c.Drop(ctx)
		return nil, err
	}
	return c, nil
}

// releaseTimeout bounds the giving back, which goes on when the client has left.
const releaseTimeout = 10 * time.Second

// giveBack releases what a service no longer holds. What cannot be released is
// found by the next repair.
func (a *Allocator) giveBack(ctx context.Context, s *corev1.Service, h holdings) {
	if len(h.addresses) == 0 && len(h.ports) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	for _, ip := range h.addresses {
		if err := a.releaseAddress(ctx, s, ip); err != nil {
			a.Logger.Warn("an address of a service could not be released; it will be repaired", "service", s.Namespace+"/"+s.Name, "address", ip, "error", err)
		}
	}
	if err := a.ports.free(ctx, h.ports); err != nil {
		a.Logger.Warn("node ports of a service could not be released; they will be repaired", "service", s.Namespace+"/"+s.Name, "ports", h.ports, "error", err)
	}
}

// Release gives back what a service held that has been removed. Its endpoints
// go with it.
func (a *Allocator) Release(ctx context.Context, obj registry.Object) {
	s := obj.(*corev1.Service)
	a.giveBack(ctx, s, holdings{addresses: addressesOf(s), ports: portsOf(s)})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	path := loopback.Of("", "v1", "endpoints", s.Namespace).Named(s.Name)
	if err := a.API.Delete(ctx, path, nil); ignoreNotFound(err) != nil {
		a.Logger.Warn("the endpoints of a removed service could not be deleted", "service", s.Namespace+"/"+s.Name, "error", err)
	}
}

// invalid is one field's error.
func invalid(s *corev1.Service, err *field.Error) error {
	return newInvalid(s.Name, field.ErrorList{err})
}

// exhausted is the error of a range without anything left.
func exhausted(what string, err error) error {
	return newInternal(fmt.Errorf("failed to allocate a %s: %w", what, err))
}
