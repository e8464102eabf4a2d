package volume

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/json/transcode"
)

// DefaultSource sets the defaults of the source of a persistent volume.
func DefaultSource(source *corev1.PersistentVolumeSource) {
	poddefaults.HostPath(source.HostPath)
	poddefaults.AzureDisk(source.AzureDisk)
	if iscsi := source.ISCSI; iscsi != nil {
		poddefaults.ISCSI(&iscsi.ISCSIInterface)
	}
	if rbd := source.RBD; rbd != nil {
		poddefaults.RBD(&rbd.RBDPool, &rbd.RadosUser, &rbd.Keyring)
	}
	if scaleIO := source.ScaleIO; scaleIO != nil {
		poddefaults.ScaleIO(&scaleIO.StorageMode, &scaleIO.FSType)
	}
}

// SourceDefaultedRules returns the rules for the defaults of DefaultSource and of quantities.
func SourceDefaultedRules() []transcode.Rule {
	return append(poddefaults.ClaimDefaultedRules(),
		transcode.FieldsSet[corev1.ISCSIPersistentVolumeSource]("iscsiInterface"),
		transcode.FieldsSet[corev1.RBDPersistentVolumeSource]("pool", "user", "keyring"),
		transcode.FieldsSet[corev1.ScaleIOPersistentVolumeSource]("storageMode", "fsType"),
	)
}
