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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// Cache is the part of the watch cache that allocations need.
type Cache interface {
	MostRecent(ctx context.Context) (int64, error)
	// Incarnation increases when the revision of the store goes backwards.
	Incarnation() uint64
}

// Config holds the dependencies and options of an Allocator.
type Config struct {
	// API is a client of the server's own resource API. It writes addresses.
	API   *internalclient.Client
	Store storage.Interface
	Root  string // prefix of all keys, without a trailing slash
	Cache Cache
	// Services, Addresses and Ranges read the objects of the cluster.
	Services  View[*corev1.Service]
	Addresses View[*networkingv1.IPAddress]
	Ranges    View[*networkingv1.ServiceCIDR]
	// Prefixes are the configured ranges, at most one for each family. The family of the first one
	// is the default.
	Prefixes []netip.Prefix
	Ports    utilnet.PortRange
	// DualWrite also records the addresses of Prefixes in range allocations, which servers without
	// IPAddress objects read.
	DualWrite bool
	// Bitmap records addresses in range allocations only, as Kubernetes does without the gate
	// MultiCIDRServiceAllocator. Services then get addresses of Prefixes, and IPAddress and
	// ServiceCIDR objects have no effect.
	Bitmap bool
	// Scheme must have the type of range allocations.
	Scheme *runtime.Scheme
	// Identity names this replica in events.
	Identity   string
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Allocator allocates addresses and node ports. Its methods are safe for concurrent use.
type Allocator struct {
	Config
	ports   *nodePortBitmap
	bitmaps []*addressBitmap
	metrics *metrics
	repairs repairState
}

// New returns an Allocator.
func New(config Config) *Allocator {
	result := &Allocator{Config: config}
	result.metrics = newMetrics(config.Registerer, result.rangeUsage)
	result.ports = newNodePortBitmap(&bitmapAllocator{
		store:              config.Store,
		key:                config.Root + "/ranges/servicenodeports",
		codec:              newRangeCodec(config.Scheme),
		currentIncarnation: func() uint64 { return config.Cache.Incarnation() },
	}, config.Ports, result.portsInUse, result.metrics)
	if config.DualWrite || config.Bitmap {
		result.bitmaps = result.newAddressBitmaps()
	}
	return result
}

// Complete sets the fields of a service that need no allocation: the address families, their policy,
// and the values of the live service that an update omits. oldObj is nil at creation.
func (a *Allocator) Complete(obj, oldObj registry.Object) field.ErrorList {
	service := obj.(*corev1.Service)
	old := (*corev1.Service)(nil)
	if oldObj != nil {
		old = oldObj.(*corev1.Service)
		keepAllocated(service, old)
	}
	syncAddresses(service, old)
	return a.completeFamilies(service, old)
}

// reservation holds the values that a service acquires, and those that it no longer needs, with one
// write. It implements admission.Reservation. The caller of Allocate must call exactly one of
// Commit and Rollback, once.
type reservation struct {
	allocator          *Allocator
	service            *corev1.Service
	acquired, released allocations
}

// allocations holds addresses and ports.
type allocations struct {
	addresses []netip.Addr
	ports     []int
}

// Commit is called after the object was written. It frees the values that the object no longer
// needs.
func (r *reservation) Commit(ctx context.Context) { r.allocator.release(ctx, r.service, r.released) }

// Rollback is called if the object was not written. It frees the acquired values.
func (r *reservation) Rollback(ctx context.Context) { r.allocator.release(ctx, r.service, r.acquired) }

// Allocate allocates the addresses and ports that a service lacks and sets them. oldObj is nil at
// creation. A dry run allocates nothing. A service without a name gets none, because no IPAddress
// can refer to it; its validation fails.
func (a *Allocator) Allocate(ctx context.Context, obj, oldObj registry.Object, dryRun bool) (admission.Reservation, error) {
	service := obj.(*corev1.Service)
	res := &reservation{allocator: a, service: service}
	if service.Name == "" {
		return res, nil
	}
	var old *corev1.Service
	if oldObj != nil {
		old = oldObj.(*corev1.Service)
	}
	err := a.claimAddresses(ctx, res, old, dryRun)
	if err == nil {
		err = a.claimPorts(ctx, res, old, dryRun)
	}
	if dryRun {
		res.acquired = allocations{}
		res.released = allocations{}
	}
	if err != nil {
		res.Rollback(ctx)
		return nil, err
	}
	return res, nil
}

// releaseTimeout is the time limit for freeing values, which continues after the client
// disconnects.
const releaseTimeout = 10 * time.Second

// release frees values that a service no longer holds. The next repair finds values that could not
// be freed.
func (a *Allocator) release(ctx context.Context, service *corev1.Service, values allocations) {
	if len(values.addresses) == 0 && len(values.ports) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	for _, ip := range values.addresses {
		if err := a.releaseAddress(ctx, service, ip); err != nil {
			a.Logger.Warn("failed to release a cluster IP; the next repair releases it", "service",
				service.Namespace+"/"+service.Name, "address", ip, "error", err)
		}
	}
	if err := a.ports.releaseAll(ctx, values.ports); err != nil {
		a.Logger.Warn("failed to release node ports; the next repair releases them", "service",
			service.Namespace+"/"+service.Name, "ports", values.ports, "error", err)
	}
}

// Release frees the values of a service that has been removed, and deletes its endpoints.
func (a *Allocator) Release(ctx context.Context, obj registry.Object) {
	service := obj.(*corev1.Service)
	a.release(ctx, service, allocations{addresses: addressesOf(service), ports: portsOf(service)})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	path := internalclient.Collection("", "v1", "endpoints", service.Namespace).Named(service.Name)
	if err := a.API.Delete(ctx, path, nil); ignoreNotFound(err) != nil {
		a.Logger.Warn("failed to delete the endpoints of a deleted service", "service", service.Namespace+"/"+service.Name, "error", err)
	}
}

// invalidError returns the error of one field.
func invalidError(service *corev1.Service, err *field.Error) error {
	return status.Invalid(schema.GroupKind{Kind: "Service"}, service.Name, field.ErrorList{err})
}

// exhaustedError returns the error of a range without free values.
func exhaustedError(subject string, err error) error {
	return apierrors.NewInternalError(fmt.Errorf("failed to allocate a %s: %w", subject, err))
}
