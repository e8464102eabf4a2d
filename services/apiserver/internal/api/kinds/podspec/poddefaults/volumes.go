package poddefaults

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	// fileMode is the default mode of files from the API.
	fileMode = 0o644
	// tokenLifetime is the default in seconds.
	tokenLifetime = 60 * 60
)

// Claim sets the defaults of a claim, including one in a template.
func Claim(claim *corev1.PersistentVolumeClaim) {
	declare.SetDefault(&claim.Status.Phase, corev1.ClaimPending)
	Round(claim.Status.Capacity)
	Round(claim.Status.AllocatedResources)
	ClaimSpec(&claim.Spec)
}

// ClaimSpec sets the defaults of a claim's spec.
func ClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	declare.SetDefaultPtr(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	Round(s.Resources.Limits)
	Round(s.Resources.Requests)
}

// HostPath sets the defaults of a host path volume.
func HostPath(v *corev1.HostPathVolumeSource) {
	if v != nil {
		declare.SetDefaultPtr(&v.Type, corev1.HostPathUnset)
	}
}

// AzureDisk sets the defaults of an Azure disk.
func AzureDisk(azureDiskVolumeSource *corev1.AzureDiskVolumeSource) {
	if azureDiskVolumeSource == nil {
		return
	}
	declare.SetDefaultPtr(&azureDiskVolumeSource.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	declare.SetDefaultPtr(&azureDiskVolumeSource.Kind, corev1.AzureSharedBlobDisk)
	declare.SetDefaultPtr(&azureDiskVolumeSource.FSType, "ext4")
	declare.SetDefaultPtr(&azureDiskVolumeSource.ReadOnly, false)
}

// ISCSI sets the default interface of an iSCSI volume.
func ISCSI(iface *string) { declare.SetDefault(iface, "default") }

// RBD sets the defaults of pool, user and keyring of an RBD volume.
func RBD(pool, user, keyring *string) {
	declare.SetDefault(pool, "rbd")
	declare.SetDefault(user, "admin")
	declare.SetDefault(keyring, "/etc/ceph/keyring")
}

// ScaleIO sets the defaults of storage mode and file system of a ScaleIO volume.
func ScaleIO(mode, fsType *string) {
	declare.SetDefault(mode, "ThinProvisioned")
	declare.SetDefault(fsType, "xfs")
}

// fillVolume sets the defaults of a volume. A volume without a source becomes an empty directory.
func fillVolume(volume *corev1.Volume) {
	if volume.VolumeSource == (corev1.VolumeSource{}) {
		volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	// An invalid volume may have several sources.
	if volume.Secret != nil {
		declare.SetDefaultPtr(&volume.Secret.DefaultMode, fileMode)
	}
	if volume.ConfigMap != nil {
		declare.SetDefaultPtr(&volume.ConfigMap.DefaultMode, fileMode)
	}
	if volume.DownwardAPI != nil {
		declare.SetDefaultPtr(&volume.DownwardAPI.DefaultMode, fileMode)
		fillFiles(volume.DownwardAPI.Items)
	}
	if volume.Projected != nil {
		fillProjected(volume.Projected)
	}
	if volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil {
		ClaimSpec(&volume.Ephemeral.VolumeClaimTemplate.Spec)
	}
	if volume.ISCSI != nil {
		ISCSI(&volume.ISCSI.ISCSIInterface)
	}
	if volume.RBD != nil {
		RBD(&volume.RBD.RBDPool, &volume.RBD.RadosUser, &volume.RBD.Keyring)
	}
	if volume.ScaleIO != nil {
		ScaleIO(&volume.ScaleIO.StorageMode, &volume.ScaleIO.FSType)
	}
	HostPath(volume.HostPath)
	AzureDisk(volume.AzureDisk)
}

// ImageVolumes sets the defaults of image volumes, which have none if their feature gate is off.
func ImageVolumes(s *corev1.PodSpec) {
	for _, v := range s.Volumes {
		if v.Image != nil {
			fillPullPolicy(&v.Image.PullPolicy, v.Image.Reference)
		}
	}
}

func fillProjected(p *corev1.ProjectedVolumeSource) {
	declare.SetDefaultPtr(&p.DefaultMode, fileMode)
	for i := range p.Sources {
		volumeProjection := &p.Sources[i]
		if volumeProjection.DownwardAPI != nil {
			fillFiles(volumeProjection.DownwardAPI.Items)
		}
		if volumeProjection.ServiceAccountToken != nil {
			declare.SetDefaultPtr(&volumeProjection.ServiceAccountToken.ExpirationSeconds, tokenLifetime)
		}
	}
}

func fillFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		fillFieldRef(files[i].FieldRef)
	}
}
