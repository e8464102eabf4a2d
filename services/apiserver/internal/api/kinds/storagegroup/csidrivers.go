package storagegroup

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// csiDrivers declares the cluster-scoped kind CSIDriver. mutableCount is the feature gate
// MutableCSINodeAllocatableCount.
func csiDrivers(mutableCount bool) *registry.Kind {
	return declare.Kind[storagev1.CSIDriver, storagev1.CSIDriverList](&registry.Kind{
		Names:   registry.Names{Group: group, Version: version, Resource: "csidrivers", Kind: "CSIDriver"},
		Default: declare.Adapt(defaultCSIDriver),
		Create: registry.Create{
			Prepare: declare.Adapt(func(csiDriver *storagev1.CSIDriver) {
				if !mutableCount {
					csiDriver.Spec.NodeAllocatableUpdatePeriodSeconds = nil
				}
			}),
			Validate: declare.AdaptValidation(validateDriver),
		},
		Update: registry.Update{
			RequireResourceVersion: true,
			// Prepare increments the generation itself, because Update.Generation would set it to 1
			// at creation. As in Kubernetes, it starts at 0.
			Prepare: declare.AdaptUpdate(func(csiDriver, old *storagev1.CSIDriver) {
				if !mutableCount && old.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
					csiDriver.Spec.NodeAllocatableUpdatePeriodSeconds = nil
				}
				if !validate.SemanticEqual(csiDriver.Spec, old.Spec) {
					csiDriver.Generation = old.Generation + 1
				}
			}),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, csiDriver, old *storagev1.CSIDriver) {
				validateDriver(fld, csiDriver)
				fld.Child("spec").CheckImmutable("attachedRequired", csiDriver.Spec.AttachRequired, old.Spec.AttachRequired)
				fld.Child("spec").CheckImmutable("volumeLifecycleModes", csiDriver.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)
			}),
		},
		Delete:       registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: csiDriverColumns()},
	})
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	spec := &d.Spec
	declare.SetDefaultPtr(&spec.AttachRequired, true)
	declare.SetDefaultPtr(&spec.PodInfoOnMount, false)
	declare.SetDefaultPtr(&spec.StorageCapacity, false)
	declare.SetDefaultPtr(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	declare.SetDefaultPtr(&spec.RequiresRepublish, false)
	declare.SetDefaultPtr(&spec.SELinuxMount, false)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// Limits of a token's lifetime and of nodeAllocatableUpdatePeriodSeconds, in seconds.
const (
	minTokenSeconds        = 10 * 60
	maxTokenSeconds        = 1 << 32
	minUpdatePeriodSeconds = 10
)

// validateDriver validates a driver. As in Kubernetes, errors name the field attachRequired
// "attachedRequired".
func validateDriver(fld validate.Field, d *storagev1.CSIDriver) {
	csiDriverSpec, spec := &d.Spec, fld.Child("spec")
	spec.RequireSet("attachedRequired", csiDriverSpec.AttachRequired != nil)
	spec.RequireSet("podInfoOnMount", csiDriverSpec.PodInfoOnMount != nil)
	spec.RequireSet("storageCapacity", csiDriverSpec.StorageCapacity != nil)
	validate.OptionalOneOf(spec, "fsGroupPolicy", csiDriverSpec.FSGroupPolicy,
		storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	audiences := validate.Set[string]{}
	validate.Each(spec, "tokenRequests", csiDriverSpec.TokenRequests, func(fld validate.Field, tokenRequest *storagev1.TokenRequest) {
		if !audiences.Add(tokenRequest.Audience) {
			fld.Duplicate("audience", tokenRequest.Audience)
			return // as Kubernetes, which reports no further error of a duplicate
		}
		switch lifetime := tokenRequest.ExpirationSeconds; {
		case lifetime == nil:
		case *lifetime < minTokenSeconds:
			fld.Invalid("expirationSeconds", *lifetime, "may not specify a duration less than 10 minutes")
		case *lifetime > maxTokenSeconds:
			fld.Invalid("expirationSeconds", *lifetime, "may not specify a duration larger than 2^32 seconds")
		}
	})
	for _, mode := range csiDriverSpec.VolumeLifecycleModes {
		validate.OneOf(spec, "volumeLifecycleModes", mode, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
	}
	spec.RequireSet("seLinuxMount", csiDriverSpec.SELinuxMount != nil)
	if n := csiDriverSpec.NodeAllocatableUpdatePeriodSeconds; n != nil && *n < minUpdatePeriodSeconds {
		spec.Invalid("nodeAllocatableUpdatePeriodSeconds", *n, "must be greater than or equal to 10 seconds")
	}
}

func csiDriverColumns() []registry.Column {
	doc := func(name string) string { return columns.Doc(storagev1.CSIDriverSpec{}, name) }
	const trueIfNil, falseIfNil = true, false
	flag := func(name, field string, ifNil bool, valueOf func(*storagev1.CSIDriverSpec) *bool) registry.Column {
		return columns.Bool(name, doc(field), func(d *storagev1.CSIDriver) bool { return ptr.Deref(valueOf(&d.Spec), ifNil) })
	}
	return []registry.Column{
		columns.Name(),
		flag("AttachRequired", "attachRequired", trueIfNil, func(s *storagev1.CSIDriverSpec) *bool { return s.AttachRequired }),
		flag("PodInfoOnMount", "podInfoOnMount", falseIfNil, func(s *storagev1.CSIDriverSpec) *bool { return s.PodInfoOnMount }),
		flag("StorageCapacity", "storageCapacity", falseIfNil, func(s *storagev1.CSIDriverSpec) *bool { return s.StorageCapacity }),
		columns.Text("TokenRequests", doc("tokenRequests"), audiencesText),
		flag("RequiresRepublish", "requiresRepublish", falseIfNil, func(s *storagev1.CSIDriverSpec) *bool { return s.RequiresRepublish }),
		columns.Text("Modes", doc("volumeLifecycleModes"), func(d *storagev1.CSIDriver) string {
			modes := make([]string, len(d.Spec.VolumeLifecycleModes))
			for i, m := range d.Spec.VolumeLifecycleModes {
				modes[i] = string(m)
			}
			return columns.OrNone(strings.Join(modes, ","))
		}),
		columns.Age(),
	}
}

// audiencesText returns the audiences of the token requests, or "<unset>" without the field.
func audiencesText(csiDriver *storagev1.CSIDriver) string {
	if csiDriver.Spec.TokenRequests == nil {
		return columns.Unset
	}
	audiences := make([]string, len(csiDriver.Spec.TokenRequests))
	for i, r := range csiDriver.Spec.TokenRequests {
		audiences[i] = r.Audience
	}
	return strings.Join(audiences, ",")
}
