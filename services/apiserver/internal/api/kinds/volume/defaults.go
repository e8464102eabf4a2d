package volume

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/json/transcode"
)

// DefaultSource sets the defaults of the source of a persistent volume.
func DefaultSource(persistentVolumeSource *corev1.PersistentVolumeSource) {
	poddefaults.HostPath(persistentVolumeSource.HostPath)
	poddefaults.AzureDisk(persistentVolumeSource.AzureDisk)
	if persistentVolumeSource := persistentVolumeSource.ISCSI; persistentVolumeSource != nil {
		poddefaults.ISCSI(&persistentVolumeSource.ISCSIInterface)
	}
	if persistentVolumeSource := persistentVolumeSource.RBD; persistentVolumeSource != nil {
		poddefaults.RBD(&persistentVolumeSource.RBDPool, &persistentVolumeSource.RadosUser, &persistentVolumeSource.Keyring)
	}
	if persistentVolumeSource := persistentVolumeSource.ScaleIO; persistentVolumeSource != nil {
		poddefaults.ScaleIO(&persistentVolumeSource.StorageMode, &persistentVolumeSource.FSType)
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
