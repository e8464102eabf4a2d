package volume

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/json/transcode"
)

// DefaultSource sets the defaults of the source of a persistent volume.
func DefaultSource(s *corev1.PersistentVolumeSource) {
	poddefaults.HostPath(s.HostPath)
	poddefaults.AzureDisk(s.AzureDisk)
	if s := s.ISCSI; s != nil {
		poddefaults.ISCSI(&s.ISCSIInterface)
	}
	if s := s.RBD; s != nil {
		poddefaults.RBD(&s.RBDPool, &s.RadosUser, &s.Keyring)
	}
	if s := s.ScaleIO; s != nil {
		poddefaults.ScaleIO(&s.StorageMode, &s.FSType)
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
