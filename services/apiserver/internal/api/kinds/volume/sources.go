package volume

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// sourceRules requires exactly one source. As in Kubernetes, some names in errors differ from those
// of the fields.
func sourceRules(at validate.At, name string, s *corev1.PersistentVolumeSource) {
	u := at.Choice("may not specify more than 1 volume type")
	validate.Member(u, "hostPath", s.HostPath, podspec.HostPathRules)
	validate.Member(u, "gcePersistentDisk", s.GCEPersistentDisk, func(_ validate.At, s *corev1.GCEPersistentDiskVolumeSource) {
		podspec.GCEDiskRules(at.Child("persistentDisk"), s)
	})
	validate.Member(u, "awsElasticBlockStore", s.AWSElasticBlockStore, podspec.AWSDiskRules)
	validate.Member(u, "glusterfs", s.Glusterfs, glusterfsRules)
	validate.Member(u, "flocker", s.Flocker, podspec.FlockerRules)
	validate.Member(u, "nfs", s.NFS, podspec.NFSRules)
	validate.Member(u, "rbd", s.RBD, func(at validate.At, s *corev1.RBDPersistentVolumeSource) {
		at.Present("monitors", len(s.CephMonitors) > 0)
		at.Present("image", s.RBDImage != "")
	})
	validate.Member(u, "quobyte", s.Quobyte, podspec.QuobyteRules)
	validate.Member(u, "cephFS", s.CephFS, func(_ validate.At, s *corev1.CephFSPersistentVolumeSource) {
		at.Child("cephfs").Present("monitors", len(s.Monitors) > 0)
	})
	validate.Member(u, "iscsi", s.ISCSI, func(at validate.At, s *corev1.ISCSIPersistentVolumeSource) { iscsiRules(at, name, s) })
	validate.Member(u, "cinder", s.Cinder, func(at validate.At, s *corev1.CinderPersistentVolumeSource) {
		at.Present("volumeID", s.VolumeID != "")
		validate.Optional(at, "secretRef", s.SecretRef, secretRules)
	})
	validate.Member(u, "fc", s.FC, podspec.FCRules)
	validate.AnyMember(u, "flexVolume", s.FlexVolume, func(at validate.At, s *corev1.FlexPersistentVolumeSource) {
		podspec.FlexRules(at, s.Driver, s.Options)
	})
	validate.Member(u, "azureFile", s.AzureFile, func(at validate.At, s *corev1.AzureFilePersistentVolumeSource) {
		at.Present("secretName", s.SecretName != "")
		at.Present("shareName", s.ShareName != "")
		at.Present("secretNamespace", s.SecretNamespace == nil || *s.SecretNamespace != "")
	})
	validate.Member(u, "vsphereVolume", s.VsphereVolume, func(at validate.At, s *corev1.VsphereVirtualDiskVolumeSource) {
		at.Present("volumePath", s.VolumePath != "")
	})
	validate.Member(u, "photonPersistentDisk", s.PhotonPersistentDisk, func(at validate.At, s *corev1.PhotonPersistentDiskVolumeSource) {
		at.Present("pdID", s.PdID != "")
	})
	validate.Member(u, "portworxVolume", s.PortworxVolume, func(at validate.At, s *corev1.PortworxVolumeSource) {
		at.Present("volumeID", s.VolumeID != "")
	})
	validate.Member(u, "azureDisk", s.AzureDisk, podspec.AzureDiskRules)
	validate.Member(u, "scaleIO", s.ScaleIO, func(at validate.At, s *corev1.ScaleIOPersistentVolumeSource) {
		at.Present("gateway", s.Gateway != "")
		at.Present("system", s.System != "")
		at.Present("volumeName", s.VolumeName != "")
	})
	validate.Member(u, "local", s.Local, func(at validate.At, s *corev1.LocalVolumeSource) {
		if s.Path == "" {
			at.Required("path", "")
			return
		}
		podspec.WithoutBackstep(at, "path", s.Path)
	})
	validate.Member(u, "storageos", s.StorageOS, storageOSRules)
	validate.Member(u, "csi", s.CSI, csiRules)
	u.Some("must specify a volume type")
}

func glusterfsRules(at validate.At, s *corev1.GlusterfsPersistentVolumeSource) {
	at.Present("endpoints", s.EndpointsName != "")
	at.Present("path", s.Path != "")
	if ns := s.EndpointsNamespace; ns != nil {
		if *ns == "" {
			at.Invalid("endpointsNamespace", *ns, "if the endpointnamespace is set, it must be a valid namespace name")
			return
		}
		at.Text("endpointsNamespace", *ns, validate.DNSLabel)
	}
}

func iscsiRules(at validate.At, name string, s *corev1.ISCSIPersistentVolumeSource) {
	podspec.ISCSIRules(at, name, &corev1.ISCSIVolumeSource{
		TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, InitiatorName: s.InitiatorName,
		DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth,
		SecretRef: localSecret(s.SecretRef),
	})
	if s.SecretRef != nil {
		at.Child("secretRef").Present("name", s.SecretRef.Name != "")
	}
}

func localSecret(s *corev1.SecretReference) *corev1.LocalObjectReference {
	if s == nil {
		return nil
	}
	return &corev1.LocalObjectReference{Name: s.Name}
}

func secretRules(at validate.At, s *corev1.SecretReference) {
	at.Present("name", s.Name != "")
	at.Present("namespace", s.Namespace != "")
}

func storageOSRules(at validate.At, s *corev1.StorageOSPersistentVolumeSource) {
	at.RequiredText("volumeName", s.VolumeName, validate.DNSLabel)
	at.OptionalText("volumeNamespace", s.VolumeNamespace, validate.DNSLabel)
	validate.Optional(at, "secretRef", s.SecretRef, func(at validate.At, r *corev1.ObjectReference) {
		at.Present("name", r.Name != "")
		at.Present("namespace", r.Namespace != "")
	})
}

func csiRules(at validate.At, s *corev1.CSIPersistentVolumeSource) {
	podspec.CSIDriverName(at, "driver", s.Driver)
	at.Present("volumeHandle", s.VolumeHandle != "")
	for _, secret := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef},
		{"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		validate.Optional(at, secret.name, secret.ref, func(at validate.At, r *corev1.SecretReference) {
			at.RequiredText("name", r.Name, validate.DNSSubdomain)
			at.RequiredText("namespace", r.Namespace, validate.DNSLabel)
		})
	}
}
