package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	// fileMode of files that come from the API.
	fileMode = 0o644
	// tokenLifetime in seconds.
	tokenLifetime = 60 * 60
)

// Claim fills a claim, also one that a template embeds.
func Claim(c *corev1.PersistentVolumeClaim) {
	declare.Fill(&c.Status.Phase, corev1.ClaimPending)
	Round(c.Status.Capacity)
	Round(c.Status.AllocatedResources)
	ClaimSpec(&c.Spec)
}

// ClaimSpec fills the specification of a claim.
func ClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	declare.FillPtr(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	Round(s.Resources.Limits)
	Round(s.Resources.Requests)
}

// HostPath fills a volume that is a path of the node.
func HostPath(v *corev1.HostPathVolumeSource) {
	if v != nil {
		declare.FillPtr(&v.Type, corev1.HostPathUnset)
	}
}

// AzureDisk fills a volume that is a disk of that cloud.
func AzureDisk(v *corev1.AzureDiskVolumeSource) {
	if v == nil {
		return
	}
	declare.FillPtr(&v.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	declare.FillPtr(&v.Kind, corev1.AzureSharedBlobDisk)
	declare.FillPtr(&v.FSType, "ext4")
	declare.FillPtr(&v.ReadOnly, false)
}

// ISCSI fills the interface of a volume of that kind.
func ISCSI(iface *string) { declare.Fill(iface, "default") }

// RBD fills pool, user and keyring of a volume of that kind.
func RBD(pool, user, keyring *string) {
	declare.Fill(pool, "rbd")
	declare.Fill(user, "admin")
	declare.Fill(keyring, "/etc/ceph/keyring")
}

// ScaleIO fills the storage mode and file system of a volume of that kind.
func ScaleIO(mode, fsType *string) {
	declare.Fill(mode, "ThinProvisioned")
	declare.Fill(fsType, "xfs")
}

// fillVolume makes a volume of no kind an empty directory.
func fillVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.Secret != nil:
		declare.FillPtr(&v.Secret.DefaultMode, fileMode)
	case v.ConfigMap != nil:
		declare.FillPtr(&v.ConfigMap.DefaultMode, fileMode)
	case v.DownwardAPI != nil:
		declare.FillPtr(&v.DownwardAPI.DefaultMode, fileMode)
		fillFiles(v.DownwardAPI.Items)
	case v.Projected != nil:
		fillProjected(v.Projected)
	case v.Image != nil:
		fillPullPolicy(&v.Image.PullPolicy, v.Image.Reference)
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		ClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	case v.ISCSI != nil:
		ISCSI(&v.ISCSI.ISCSIInterface)
	case v.RBD != nil:
		RBD(&v.RBD.RBDPool, &v.RBD.RadosUser, &v.RBD.Keyring)
	case v.ScaleIO != nil:
		ScaleIO(&v.ScaleIO.StorageMode, &v.ScaleIO.FSType)
	}
	HostPath(v.HostPath)
	AzureDisk(v.AzureDisk)
}

func fillProjected(p *corev1.ProjectedVolumeSource) {
	declare.FillPtr(&p.DefaultMode, fileMode)
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.DownwardAPI != nil {
			fillFiles(s.DownwardAPI.Items)
		}
		if s.ServiceAccountToken != nil {
			declare.FillPtr(&s.ServiceAccountToken.ExpirationSeconds, tokenLifetime)
		}
	}
}

func fillFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		fillFieldRef(files[i].FieldRef)
	}
}
