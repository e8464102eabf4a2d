package storagegroup

import (
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func volumeAttachments() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "volumeattachments", Singular: "volumeattachment", Kind: "VolumeAttachment",
		New:                declare.New[storagev1.VolumeAttachment],
		NewList:            declare.New[storagev1.VolumeAttachmentList],
		Stored:             registry.Stored{Prefix: "volumeattachments"},
		UpdateNeedsVersion: true,
		ReturnDeleted:      true,
		Columns:            volumeAttachmentColumns(),
		Subresources: []registry.Subresource{
			declare.Resetting(declare.View("status", "VolumeAttachment", declare.Change(func(a, old *storagev1.VolumeAttachment) {
				a.Spec = old.Spec
				declare.KeepMeta(a, old)
			})), "metadata", "spec"),
		},
	}
}

func volumeAttachmentColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(storagev1.VolumeAttachmentSpec{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Of("Attacher", columns.String, "name", spec("attacher"), 0, func(a *storagev1.VolumeAttachment) any { return a.Spec.Attacher }),
		columns.Text("PV", columns.Doc(storagev1.VolumeAttachmentSource{}, "persistentVolumeName"), func(a *storagev1.VolumeAttachment) string {
			if a.Spec.Source.PersistentVolumeName == nil {
				return ""
			}
			return *a.Spec.Source.PersistentVolumeName
		}),
		columns.Text("Node", spec("nodeName"), func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName }),
		columns.Bool("Attached", columns.Doc(storagev1.VolumeAttachmentStatus{}, "attached"), func(a *storagev1.VolumeAttachment) bool {
			return a.Status.Attached
		}),
		columns.Age(),
	}
}
