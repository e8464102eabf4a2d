package resource

import (
	"slices"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// allowing returns the gates for an object that may already use admin access.
func (g gates) allowing(admin bool) gates {
	g.admin = g.admin || admin
	return g
}

// grantedBy reports whether an allocation sets admin access.
func grantedBy(a *resourcev1beta1.AllocationResult) bool {
	return a != nil && slices.ContainsFunc(a.Devices.Results, func(r resourcev1beta1.DeviceRequestAllocationResult) bool { return r.AdminAccess != nil })
}

func grantedByBeta2(a *resourcev1beta2.AllocationResult) bool {
	return a != nil && slices.ContainsFunc(a.Devices.Results, func(r resourcev1beta2.DeviceRequestAllocationResult) bool { return r.AdminAccess != nil })
}

// claimStatus resets the fields that a status update must not change. The status of a device is
// removed together with its allocation.
func (g gates) claimStatus(c, old *resourcev1beta1.ResourceClaim) {
	c.Spec = old.Spec
	declare.KeepMeta(c, old)
	var now, was []resourcev1beta1.DeviceRequestAllocationResult
	if a := c.Status.Allocation; a != nil {
		now = a.Devices.Results
	}
	if a := old.Status.Allocation; a != nil {
		was = a.Devices.Results
	}
	of := func(r *resourcev1beta1.DeviceRequestAllocationResult) deviceID {
		return deviceID{r.Driver, r.Pool, r.Device}
	}
	c.Status.Devices = keepReported(g.devices || len(old.Status.Devices) > 0, c.Status.Devices, freed(now, was, of),
		func(d *resourcev1beta1.AllocatedDeviceStatus) deviceID { return deviceID{d.Driver, d.Pool, d.Device} })
	requested := slices.ContainsFunc(old.Spec.Devices.Requests, func(r resourcev1beta1.DeviceRequest) bool { return r.AdminAccess != nil })
	if !g.admin && !requested && !grantedBy(old.Status.Allocation) {
		for i := range now {
			now[i].AdminAccess = nil
		}
	}
}

func (g gates) claimStatusBeta2(c, old *resourcev1beta2.ResourceClaim) {
	c.Spec = old.Spec
	declare.KeepMeta(c, old)
	var now, was []resourcev1beta2.DeviceRequestAllocationResult
	if a := c.Status.Allocation; a != nil {
		now = a.Devices.Results
	}
	if a := old.Status.Allocation; a != nil {
		was = a.Devices.Results
	}
	of := func(r *resourcev1beta2.DeviceRequestAllocationResult) deviceID {
		return deviceID{r.Driver, r.Pool, r.Device}
	}
	c.Status.Devices = keepReported(g.devices || len(old.Status.Devices) > 0, c.Status.Devices, freed(now, was, of),
		func(d *resourcev1beta2.AllocatedDeviceStatus) deviceID { return deviceID{d.Driver, d.Pool, d.Device} })
	requested := slices.ContainsFunc(old.Spec.Devices.Requests, func(r resourcev1beta2.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.AdminAccess != nil
	})
	if !g.admin && !requested && !grantedByBeta2(old.Status.Allocation) {
		for i := range now {
			now[i].AdminAccess = nil
		}
	}
}

// freed returns the devices that are no longer allocated.
func freed[R any](now, was []R, of func(*R) deviceID) validate.Set[deviceID] {
	gone := validate.SetOf(was, of)
	for i := range now {
		delete(gone, of(&now[i]))
	}
	return gone
}

// keepReported returns the device statuses without those of freed devices, or nil unless any is set.
func keepReported[D any](any bool, devices []D, gone validate.Set[deviceID], of func(*D) deviceID) []D {
	if any {
		devices = slices.DeleteFunc(devices, func(d D) bool { return gone.Has(of(&d)) })
	}
	if !any || len(devices) == 0 {
		return nil
	}
	return devices
}
