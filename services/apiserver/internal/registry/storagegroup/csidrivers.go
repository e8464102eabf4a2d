package storagegroup

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

func csiDrivers() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "csidrivers", Singular: "csidriver", Kind: "CSIDriver",
		New:                declare.New[storagev1.CSIDriver],
		NewList:            declare.New[storagev1.CSIDriverList],
		Stored:             registry.Stored{Prefix: "csidrivers"},
		Default:            declare.Do(defaultCSIDriver),
		ValidateName:       meta.PathSegment,
		AnyFinalizer:       true,
		Generation:         true,
		UpdateNeedsVersion: true,
		ReturnDeleted:      true,
		Columns:            csiDriverColumns(),
	}
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	declare.FillPtr(&s.AttachRequired, true)
	declare.FillPtr(&s.PodInfoOnMount, false)
	declare.FillPtr(&s.StorageCapacity, false)
	declare.FillPtr(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	declare.FillPtr(&s.RequiresRepublish, false)
	declare.FillPtr(&s.SELinuxMount, false)
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func csiDriverColumns() []registry.Column {
	doc := func(name string) string { return columns.Doc(storagev1.CSIDriverSpec{}, name) }
	flag := func(name, field string, absent bool, of func(*storagev1.CSIDriverSpec) *bool) registry.Column {
		return columns.Bool(name, doc(field), func(d *storagev1.CSIDriver) bool { return isTrue(of(&d.Spec), absent) })
	}
	return []registry.Column{
		columns.Name(),
		flag("AttachRequired", "attachRequired", true, func(s *storagev1.CSIDriverSpec) *bool { return s.AttachRequired }),
		flag("PodInfoOnMount", "podInfoOnMount", false, func(s *storagev1.CSIDriverSpec) *bool { return s.PodInfoOnMount }),
		flag("StorageCapacity", "storageCapacity", false, func(s *storagev1.CSIDriverSpec) *bool { return s.StorageCapacity }),
		columns.Text("TokenRequests", doc("tokenRequests"), audiencesText),
		flag("RequiresRepublish", "requiresRepublish", false, func(s *storagev1.CSIDriverSpec) *bool { return s.RequiresRepublish }),
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
