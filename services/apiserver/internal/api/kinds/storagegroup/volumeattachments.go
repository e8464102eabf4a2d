package storagegroup

import (
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/api/kinds/volume"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// volumeAttachments declares the cluster-scoped kind VolumeAttachment. mutableCount is the feature
// gate MutableCSINodeAllocatableCount. Without it, new error codes are dropped from the status.
func volumeAttachments(mutableCount bool) *registry.Kind {
	validateUpdate := func(fld validate.Field, volumeAttachment, old *storagev1.VolumeAttachment) {
		fld.RecordTwice(func() { validateAttachment(fld, volumeAttachment) })
		fld.CheckImmutable("spec", volumeAttachment.Spec, old.Spec)
	}
	return declare.Kind[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](&registry.Kind{
		Names: registry.Names{Group: group, Version: version, Resource: "volumeattachments", Kind: "VolumeAttachment"},
		Parts: declare.SpecStatusAccessors(func(v *storagev1.VolumeAttachment) (*storagev1.VolumeAttachmentSpec, *storagev1.VolumeAttachmentStatus) {
			return &v.Spec, &v.Status
		}),
		Default:        declare.Adapt(defaultAttachment),
		DefaultedRules: volume.SourceDefaultedRules,
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, volumeAttachment *storagev1.VolumeAttachment) {
				validateAttachment(fld, volumeAttachment)
				validateNewAttachment(fld, volumeAttachment)
			}),
		},
		Update: registry.Update{
			Order:                  registry.Order{registry.MetaRules, registry.MetaRules, registry.UpdateRules},
			RequireResourceVersion: true,
			Validate:               declare.AdaptUpdateValidation(validateUpdate),
		},
		Delete:       registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: volumeAttachmentColumns()},
		Subresources: []registry.Subresource{
			declare.WithValidationOrder(
				declare.WithResetFields(declare.ValidatedView("status", "VolumeAttachment", func(volumeAttachment, old *storagev1.VolumeAttachment) {
					volumeAttachment.Spec = old.Spec
					declare.ResetMetaForStatus(volumeAttachment, old)
					if !mutableCount {
						dropCode(volumeAttachment.Status.AttachError, old.Status.AttachError)
						dropCode(volumeAttachment.Status.DetachError, old.Status.DetachError)
					}
				}, validateUpdate), "metadata", "spec"),
				registry.MetaRules,
				registry.MetaRules,
				registry.UpdateRules,
			),
		},
	})
}

// Limits of the status, in bytes.
const (
	maxMetadataBytes = 256 * 1024
	maxErrorMessage  = 1024
)

// defaultAttachment sets the defaults of an inline volume.
func defaultAttachment(a *storagev1.VolumeAttachment) {
	if s := a.Spec.Source.InlineVolumeSpec; s != nil {
		poddefaults.Round(s.Capacity)
		volume.DefaultSource(&s.PersistentVolumeSource)
	}
}

// validateAttachment applies the rules for new and changed attachments.
func validateAttachment(fld validate.Field, volumeAttachment *storagev1.VolumeAttachment) {
	s, spec := &volumeAttachment.Spec, fld.Child("spec")
	spec.RequireSet("attacher", s.Attacher != "")
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	name := s.Source.PersistentVolumeName
	inline := s.Source.InlineVolumeSpec
	switch {
	case name == nil && inline == nil:
		spec.Required("source", exactlyOne)
	case name != nil && inline != nil:
		spec.Forbidden("source", exactlyOne)
	case inline != nil:
		volume.ValidateInlineVolume(spec.Child("source", "inlineVolumeSpec"), inline)
	case *name == "":
		spec.Child("source").Required("persistentVolumeName", "must specify non empty persistentVolumeName")
	}
	spec.CheckText("nodeName", s.NodeName, validate.DNSSubdomain)
	status := fld.Child("status")
	validateMetadata(status, "attachmentMetadata", volumeAttachment.Status.AttachmentMetadata)
	validate.Optional(status, "attachError", volumeAttachment.Status.AttachError, validateVolumeError)
	validate.Optional(status, "detachError", volumeAttachment.Status.DetachError, validateVolumeError)
}

// validateNewAttachment applies the rules that stored attachments may violate, because v1beta1 did not
// have them.
func validateNewAttachment(fld validate.Field, a *storagev1.VolumeAttachment) {
	podspec.ValidateCSIDriverName(fld.Child("spec"), "attacher", a.Spec.Attacher)
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		fld.Child("spec", "source").CheckText("persistentVolumeName", *name, validate.DNSSubdomain)
	}
}

func validateMetadata(fld validate.Field, name string, metadata map[string]string) {
	size := 0
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	if size > maxMetadataBytes {
		fld.TooLong(name, maxMetadataBytes)
	}
}

// dropCode clears the code of an error unless the old error has one.
func dropCode(e, old *storagev1.VolumeError) {
	if e != nil && (old == nil || old.ErrorCode == nil) {
		e.ErrorCode = nil
	}
}

func validateVolumeError(fld validate.Field, e *storagev1.VolumeError) {
	fld.CheckMaxBytes("message", e.Message, maxErrorMessage)
}

func volumeAttachmentColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(storagev1.VolumeAttachmentSpec{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.New(
			"Attacher",
			columns.String,
			"name",
			spec("attacher"),
			0,
			func(volumeAttachment *storagev1.VolumeAttachment) any { return volumeAttachment.Spec.Attacher },
		),
		columns.Text(
			"PV",
			columns.Doc(storagev1.VolumeAttachmentSource{}, "persistentVolumeName"),
			func(volumeAttachment *storagev1.VolumeAttachment) string {
				if volumeAttachment.Spec.Source.PersistentVolumeName == nil {
					return ""
				}
				return *volumeAttachment.Spec.Source.PersistentVolumeName
			},
		),
		columns.Text("Node", spec("nodeName"), func(volumeAttachment *storagev1.VolumeAttachment) string { return volumeAttachment.Spec.NodeName }),
		columns.Bool(
			"Attached",
			columns.Doc(storagev1.VolumeAttachmentStatus{}, "attached"),
			func(volumeAttachment *storagev1.VolumeAttachment) bool {
				return volumeAttachment.Status.Attached
			},
		),
		columns.Age(),
	}
}
