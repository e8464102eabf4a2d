package resource

import (
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// gates holds the feature gates of fields. An object keeps the fields that it already uses.
type gates struct {
	alternatives, admin, taints, partitions, devices bool
}

func gatesOf(s registry.Settings) gates {
	return gates{
		alternatives: s.On(features.DRAPrioritizedList), admin: s.On(features.DRAAdminAccess),
		taints: s.On(features.DRADeviceTaints), partitions: s.On(features.DRAPartitionableDevices),
		devices: s.On(features.DRAResourceClaimDeviceStatus),
	}
}

// dropping sets the function of a kind that drops fields. old is nil for a new object.
func dropping[T registry.Object](k *registry.Kind, drop func(obj, old T)) {
	k.Create.Prepare = declare.Do(func(obj T) {
		var none T
		drop(obj, none)
	})
	k.Update.Prepare = declare.Change(drop)
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
			d.Basic.ConsumesCounters, d.Basic.NodeName, d.Basic.NodeSelector, d.Basic.AllNodes = nil, nil, nil, nil
		}
	})
	if !g.partitions && !used {
		s.Spec.SharedCounters, s.Spec.PerDeviceNodeSelection = nil, nil
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
	}, func(d *device) { d.ConsumesCounters, d.NodeName, d.NodeSelector, d.AllNodes = nil, nil, nil, nil })
	if !g.partitions && !used {
		s.Spec.SharedCounters, s.Spec.PerDeviceNodeSelection = nil, nil
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
			d.Basic.ConsumesCounters, d.Basic.NodeName, d.Basic.NodeSelector, d.Basic.AllNodes = nil, nil, nil, nil
		}
	})
	if !g.partitions && !used {
		s.Spec.SharedCounters, s.Spec.PerDeviceNodeSelection = nil, nil
	}
}
