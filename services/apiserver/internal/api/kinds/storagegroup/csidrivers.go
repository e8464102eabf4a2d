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
			Prepare: declare.Adapt(func(d *storagev1.CSIDriver) {
				if !mutableCount {
					d.Spec.NodeAllocatableUpdatePeriodSeconds = nil
				}
			}),
			Validate: declare.AdaptValidation(validateDriver),
		},
		Update: registry.Update{
			RequireResourceVersion: true,
			// Prepare increments the generation itself, because Update.Generation would set it to 1
			// at creation. As in Kubernetes, it starts at 0.
			Prepare: declare.AdaptUpdate(func(d, old *storagev1.CSIDriver) {
				if !mutableCount && old.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
					d.Spec.NodeAllocatableUpdatePeriodSeconds = nil
				}
				if !validate.SemanticEqual(d.Spec, old.Spec) {
					d.Generation = old.Generation + 1
				}
			}),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, d, old *storagev1.CSIDriver) {
				validateDriver(fld, d)
				fld.Child("spec").CheckImmutable("attachedRequired", d.Spec.AttachRequired, old.Spec.AttachRequired)
				fld.Child("spec").CheckImmutable("volumeLifecycleModes", d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)
			}),
		},
		Delete:       registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: csiDriverColumns()},
	})
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	declare.SetDefaultPtr(&s.AttachRequired, true)
	declare.SetDefaultPtr(&s.PodInfoOnMount, false)
	declare.SetDefaultPtr(&s.StorageCapacity, false)
	declare.SetDefaultPtr(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	declare.SetDefaultPtr(&s.RequiresRepublish, false)
	declare.SetDefaultPtr(&s.SELinuxMount, false)
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
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
	validate.Each(spec, "tokenRequests", csiDriverSpec.TokenRequests, func(fld validate.Field, r *storagev1.TokenRequest) {
		if !audiences.Add(r.Audience) {
			fld.Duplicate("audience", r.Audience)
			return // as Kubernetes, which reports no further error of a duplicate
		}
		switch lifetime := r.ExpirationSeconds; {
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
func audiencesText(d *storagev1.CSIDriver) string {
	if d.Spec.TokenRequests == nil {
		return columns.Unset
	}
	audiences := make([]string, len(d.Spec.TokenRequests))
	for i, r := range d.Spec.TokenRequests {
		audiences[i] = r.Audience
	}
	return strings.Join(audiences, ",")
}
