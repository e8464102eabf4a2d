package resource

import (
	"slices"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// gates holds the feature gates of fields. An object keeps the fields that it already uses.
type gates struct {
	alternatives, admin, taints, partitions, devices bool
}

func gatesOf(s registry.Settings) gates {
	return gates{
		alternatives: s.Enabled(features.DRAPrioritizedList), admin: s.Enabled(features.DRAAdminAccess),
		taints: s.Enabled(features.DRADeviceTaints), partitions: s.Enabled(features.DRAPartitionableDevices),
		devices: s.Enabled(features.DRAResourceClaimDeviceStatus),
	}
}

// dropping sets the function of a kind that drops fields. old is nil for a new object.
func dropping[T registry.Object](k *registry.Kind, drop func(obj, old T)) {
	k.Create.Prepare = declare.Adapt(func(obj T) {
		var none T
		drop(obj, none)
	})
	k.Update.Prepare = declare.AdaptUpdate(drop)
}

// drop clears the fields of an object unless the gate is on, or one of them is set in the old
// object.
func drop[T any](on bool, now, old []T, set func(*T) bool, empty func(*T)) {
	for i := range old {
		on = on || set(&old[i])
	}
	if on {
		return
	}
	for i := range now {
		empty(&now[i])
	}
}

func (g gates) claim(now, old []resourcev1beta1.DeviceRequest) {
	type request = resourcev1beta1.DeviceRequest
	drop(g.alternatives, now, old, func(r *request) bool { return len(r.FirstAvailable) > 0 }, func(r *request) { r.FirstAvailable = nil })
	drop(g.admin, now, old, func(r *request) bool { return r.AdminAccess != nil }, func(r *request) { r.AdminAccess = nil })
}

func (g gates) claimBeta2(now, old []resourcev1beta2.DeviceRequest) {
	type request = resourcev1beta2.DeviceRequest
	drop(g.alternatives, now, old, func(r *request) bool { return len(r.FirstAvailable) > 0 }, func(r *request) { r.FirstAvailable = nil })
	drop(g.admin, now, old, func(r *request) bool { return r.Exactly != nil && r.Exactly.AdminAccess != nil }, func(r *request) {
		if r.Exactly != nil {
			r.Exactly.AdminAccess = nil
		}
	})
}

func (g gates) slice(s, old *resourcev1beta1.ResourceSlice) {
	type device = resourcev1beta1.Device
	var before resourcev1beta1.ResourceSliceSpec
	if old != nil {
		before = old.Spec
	}
	drop(g.taints, s.Spec.Devices, before.Devices, func(d *device) bool { return d.Basic != nil && len(d.Basic.Taints) > 0 }, func(d *device) {
		if d.Basic != nil {
			d.Basic.Taints = nil
		}
	})
	used := len(before.SharedCounters) > 0 || before.PerDeviceNodeSelection != nil
	drop(g.partitions || used, s.Spec.Devices, before.Devices, func(d *device) bool {
		return d.Basic != nil && (len(d.Basic.ConsumesCounters) > 0 || d.Basic.NodeName != nil || d.Basic.NodeSelector != nil || d.Basic.AllNodes != nil)
	}, func(d *device) {
		if d.Basic != nil {
			d.Basic.ConsumesCounters = nil
			d.Basic.NodeName = nil
			d.Basic.NodeSelector = nil
			d.Basic.AllNodes = nil
		}
	})
	if !g.partitions && !used {
		s.Spec.SharedCounters = nil
		s.Spec.PerDeviceNodeSelection = nil
	}
}

func (g gates) sliceBeta2(s, old *resourcev1beta2.ResourceSlice) {
	type device = resourcev1beta2.Device
	var before resourcev1beta2.ResourceSliceSpec
	if old != nil {
		before = old.Spec
	}
	drop(g.taints, s.Spec.Devices, before.Devices, func(d *device) bool { return len(d.Taints) > 0 }, func(d *device) { d.Taints = nil })
	used := len(before.SharedCounters) > 0 || before.PerDeviceNodeSelection != nil
	drop(g.partitions || used, s.Spec.Devices, before.Devices, func(d *device) bool {
		return len(d.ConsumesCounters) > 0 || d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil
	}, func(d *device) {
		d.ConsumesCounters = nil
		d.NodeName = nil
		d.NodeSelector = nil
		d.AllNodes = nil
	})
	if !g.partitions && !used {
		s.Spec.SharedCounters = nil
		s.Spec.PerDeviceNodeSelection = nil
	}
}

func (g gates) sliceAlpha3(s, old *resourcev1alpha3.ResourceSlice) {
	type device = resourcev1alpha3.Device
	var before resourcev1alpha3.ResourceSliceSpec
	if old != nil {
		before = old.Spec
	}
	drop(g.taints, s.Spec.Devices, before.Devices, func(d *device) bool { return d.Basic != nil && len(d.Basic.Taints) > 0 }, func(d *device) {
		if d.Basic != nil {
			d.Basic.Taints = nil
		}
	})
	used := len(before.SharedCounters) > 0 || before.PerDeviceNodeSelection != nil
	drop(g.partitions || used, s.Spec.Devices, before.Devices, func(d *device) bool {
		return d.Basic != nil && (len(d.Basic.ConsumesCounters) > 0 || d.Basic.NodeName != nil || d.Basic.NodeSelector != nil || d.Basic.AllNodes != nil)
	}, func(d *device) {
		if d.Basic != nil {
			d.Basic.ConsumesCounters = nil
			d.Basic.NodeName = nil
			d.Basic.NodeSelector = nil
			d.Basic.AllNodes = nil
		}
	})
	if !g.partitions && !used {
		s.Spec.SharedCounters = nil
		s.Spec.PerDeviceNodeSelection = nil
	}
}

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
	declare.ResetMetaForStatus(c, old)
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
	declare.ResetMetaForStatus(c, old)
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
	removed := validate.KeySet(was, of)
	for i := range now {
		delete(removed, of(&now[i]))
	}
	return removed
}

// keepReported returns the device statuses without those of freed devices, or nil unless any is
// set.
func keepReported[D any](any bool, devices []D, removed validate.Set[deviceID], of func(*D) deviceID) []D {
	if any {
		devices = slices.DeleteFunc(devices, func(d D) bool { return removed.Has(of(&d)) })
	}
	if !any || len(devices) == 0 {
		return nil
	}
	return devices
}
