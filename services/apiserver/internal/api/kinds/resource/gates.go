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
	alternatives bool // DRAPrioritizedList
	admin        bool // DRAAdminAccess
	taints       bool // DRADeviceTaints
	partitions   bool // DRAPartitionableDevices
	devices      bool // DRAResourceClaimDeviceStatus
}

func gatesOf(settings registry.Settings) gates {
	return gates{
		alternatives: settings.Enabled(features.DRAPrioritizedList),
		admin:        settings.Enabled(features.DRAAdminAccess),
		taints:       settings.Enabled(features.DRADeviceTaints),
		partitions:   settings.Enabled(features.DRAPartitionableDevices),
		devices:      settings.Enabled(features.DRAResourceClaimDeviceStatus),
	}
}

// setPreparation sets the function of a kind that drops fields. old is nil for a new object.
func setPreparation[T registry.Object](kind *registry.Kind, drop func(obj, old T)) {
	kind.Create.Prepare = declare.Adapt(func(obj T) {
		var none T
		drop(obj, none)
	})
	kind.Update.Prepare = declare.AdaptUpdate(drop)
}

// dropUnless clears a field in all elements of a list, unless it is enabled or any old element uses
// it.
func dropUnless[T any](enabled bool, now, old []T, usesField func(*T) bool, clearField func(*T)) {
	if enabled || slices.ContainsFunc(old, func(e T) bool { return usesField(&e) }) {
		return
	}
	for i := range now {
		clearField(&now[i])
	}
}

func (g gates) dropClaimFields(now, old []resourcev1beta1.DeviceRequest) {
	type request = resourcev1beta1.DeviceRequest
	dropUnless(
		g.alternatives,
		now,
		old,
		func(r *request) bool { return len(r.FirstAvailable) > 0 },
		func(r *request) { r.FirstAvailable = nil },
	)
	dropUnless(g.admin, now, old, func(r *request) bool { return r.AdminAccess != nil }, func(r *request) { r.AdminAccess = nil })
}

// dropClaimFieldsBeta2 is dropClaimFields for the newest version.
func (g gates) dropClaimFieldsBeta2(now, old []resourcev1beta2.DeviceRequest) {
	type request = resourcev1beta2.DeviceRequest
	dropUnless(
		g.alternatives,
		now,
		old,
		func(r *request) bool { return len(r.FirstAvailable) > 0 },
		func(r *request) { r.FirstAvailable = nil },
	)
	dropUnless(
		g.admin,
		now,
		old,
		func(r *request) bool { return r.Exactly != nil && r.Exactly.AdminAccess != nil },
		func(r *request) {
			if r.Exactly != nil {
				r.Exactly.AdminAccess = nil
			}
		},
	)
}

// dropSliceFields drops the fields of devices, and of the slice, whose gates are off.
func (g gates) dropSliceFields(resourceSlice, old *resourcev1beta1.ResourceSlice) {
	type device = resourcev1beta1.Device
	var before resourcev1beta1.ResourceSliceSpec
	if old != nil {
		before = old.Spec
	}
	dropUnless(
		g.taints,
		resourceSlice.Spec.Devices,
		before.Devices,
		func(d *device) bool { return d.Basic != nil && len(d.Basic.Taints) > 0 },
		func(d *device) {
			if d.Basic != nil {
				d.Basic.Taints = nil
			}
		},
	)
	isPartitioned := len(before.SharedCounters) > 0 || before.PerDeviceNodeSelection != nil
	dropUnless(g.partitions || isPartitioned, resourceSlice.Spec.Devices, before.Devices, func(d *device) bool {
		return d.Basic != nil &&
			(len(d.Basic.ConsumesCounters) > 0 || d.Basic.NodeName != nil || d.Basic.NodeSelector != nil || d.Basic.AllNodes != nil)
	}, func(d *device) {
		if d.Basic != nil {
			d.Basic.ConsumesCounters = nil
			d.Basic.NodeName = nil
			d.Basic.NodeSelector = nil
			d.Basic.AllNodes = nil
		}
	})
	if !g.partitions && !isPartitioned {
		resourceSlice.Spec.SharedCounters = nil
		resourceSlice.Spec.PerDeviceNodeSelection = nil
	}
}

// dropSliceFieldsBeta2 is dropSliceFields for the newest version.
func (g gates) dropSliceFieldsBeta2(resourceSlice, old *resourcev1beta2.ResourceSlice) {
	type device = resourcev1beta2.Device
	var before resourcev1beta2.ResourceSliceSpec
	if old != nil {
		before = old.Spec
	}
	dropUnless(
		g.taints,
		resourceSlice.Spec.Devices,
		before.Devices,
		func(d *device) bool { return len(d.Taints) > 0 },
		func(d *device) { d.Taints = nil },
	)
	isPartitioned := len(before.SharedCounters) > 0 || before.PerDeviceNodeSelection != nil
	dropUnless(g.partitions || isPartitioned, resourceSlice.Spec.Devices, before.Devices, func(d *device) bool {
		return len(d.ConsumesCounters) > 0 || d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil
	}, func(d *device) {
		d.ConsumesCounters = nil
		d.NodeName = nil
		d.NodeSelector = nil
		d.AllNodes = nil
	})
	if !g.partitions && !isPartitioned {
		resourceSlice.Spec.SharedCounters = nil
		resourceSlice.Spec.PerDeviceNodeSelection = nil
	}
}

// dropSliceFieldsAlpha3 is dropSliceFields for the alpha version.
func (g gates) dropSliceFieldsAlpha3(resourceSlice, old *resourcev1alpha3.ResourceSlice) {
	type device = resourcev1alpha3.Device
	var before resourcev1alpha3.ResourceSliceSpec
	if old != nil {
		before = old.Spec
	}
	dropUnless(
		g.taints,
		resourceSlice.Spec.Devices,
		before.Devices,
		func(d *device) bool { return d.Basic != nil && len(d.Basic.Taints) > 0 },
		func(d *device) {
			if d.Basic != nil {
				d.Basic.Taints = nil
			}
		},
	)
	isPartitioned := len(before.SharedCounters) > 0 || before.PerDeviceNodeSelection != nil
	dropUnless(g.partitions || isPartitioned, resourceSlice.Spec.Devices, before.Devices, func(d *device) bool {
		return d.Basic != nil &&
			(len(d.Basic.ConsumesCounters) > 0 || d.Basic.NodeName != nil || d.Basic.NodeSelector != nil || d.Basic.AllNodes != nil)
	}, func(d *device) {
		if d.Basic != nil {
			d.Basic.ConsumesCounters = nil
			d.Basic.NodeName = nil
			d.Basic.NodeSelector = nil
			d.Basic.AllNodes = nil
		}
	})
	if !g.partitions && !isPartitioned {
		resourceSlice.Spec.SharedCounters = nil
		resourceSlice.Spec.PerDeviceNodeSelection = nil
	}
}

// withAdminAccess returns the gates for an object that may already use admin access.
func (g gates) withAdminAccess(admin bool) gates {
	g.admin = g.admin || admin
	return g
}

func grantsAdminAccess(a *resourcev1beta1.AllocationResult) bool {
	return a != nil &&
		slices.ContainsFunc(
			a.Devices.Results,
			func(r resourcev1beta1.DeviceRequestAllocationResult) bool { return r.AdminAccess != nil },
		)
}

// grantsAdminAccessBeta2 is grantsAdminAccess for the newest version.
func grantsAdminAccessBeta2(a *resourcev1beta2.AllocationResult) bool {
	return a != nil &&
		slices.ContainsFunc(
			a.Devices.Results,
			func(r resourcev1beta2.DeviceRequestAllocationResult) bool { return r.AdminAccess != nil },
		)
}

// prepareClaimStatus resets the fields that a status update must not change. The status of a device is
// removed together with its allocation.
func (g gates) prepareClaimStatus(resourceClaim, old *resourcev1beta1.ResourceClaim) {
	resourceClaim.Spec = old.Spec
	declare.ResetMetaForStatus(resourceClaim, old)
	var now, was []resourcev1beta1.DeviceRequestAllocationResult
	if a := resourceClaim.Status.Allocation; a != nil {
		now = a.Devices.Results
	}
	if a := old.Status.Allocation; a != nil {
		was = a.Devices.Results
	}
	idOf := func(r *resourcev1beta1.DeviceRequestAllocationResult) deviceID {
		return deviceID{r.Driver, r.Pool, r.Device}
	}
	resourceClaim.Status.Devices = keepDeviceStatuses(g.devices || len(old.Status.Devices) > 0, resourceClaim.Status.Devices, freedDevices(now, was, idOf),
		func(d *resourcev1beta1.AllocatedDeviceStatus) deviceID { return deviceID{d.Driver, d.Pool, d.Device} })
	requestsAdmin := slices.ContainsFunc(
		old.Spec.Devices.Requests,
		func(r resourcev1beta1.DeviceRequest) bool { return r.AdminAccess != nil },
	)
	if !g.admin && !requestsAdmin && !grantsAdminAccess(old.Status.Allocation) {
		for i := range now {
			now[i].AdminAccess = nil
		}
	}
}

// prepareClaimStatusBeta2 is prepareClaimStatus for the newest version.
func (g gates) prepareClaimStatusBeta2(resourceClaim, old *resourcev1beta2.ResourceClaim) {
	resourceClaim.Spec = old.Spec
	declare.ResetMetaForStatus(resourceClaim, old)
	var now, was []resourcev1beta2.DeviceRequestAllocationResult
	if a := resourceClaim.Status.Allocation; a != nil {
		now = a.Devices.Results
	}
	if a := old.Status.Allocation; a != nil {
		was = a.Devices.Results
	}
	idOf := func(r *resourcev1beta2.DeviceRequestAllocationResult) deviceID {
		return deviceID{r.Driver, r.Pool, r.Device}
	}
	resourceClaim.Status.Devices = keepDeviceStatuses(g.devices || len(old.Status.Devices) > 0, resourceClaim.Status.Devices, freedDevices(now, was, idOf),
		func(d *resourcev1beta2.AllocatedDeviceStatus) deviceID { return deviceID{d.Driver, d.Pool, d.Device} })
	requestsAdmin := slices.ContainsFunc(old.Spec.Devices.Requests, func(r resourcev1beta2.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.AdminAccess != nil
	})
	if !g.admin && !requestsAdmin && !grantsAdminAccessBeta2(old.Status.Allocation) {
		for i := range now {
			now[i].AdminAccess = nil
		}
	}
}

// freedDevices returns the devices that are no longer allocated.
func freedDevices[R any](now, was []R, idOf func(*R) deviceID) validate.Set[deviceID] {
	removed := validate.KeySet(was, idOf)
	for i := range now {
		delete(removed, idOf(&now[i]))
	}
	return removed
}

// keepDeviceStatuses returns the device statuses without those of removed devices, or nil if the
// statuses are not enabled.
func keepDeviceStatuses[D any](enabled bool, devices []D, removed validate.Set[deviceID], idOf func(*D) deviceID) []D {
	if enabled {
		devices = slices.DeleteFunc(devices, func(d D) bool { return removed.Has(idOf(&d)) })
	}
	if !enabled || len(devices) == 0 {
		return nil
	}
	return devices
}
