package volume

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// sourceRules requires exactly one source. As in Kubernetes, some names in errors differ from those
// of the fields.
func sourceRules(fldPath validate.Path, name string, spec *corev1.PersistentVolumeSpec) {
	s := &spec.PersistentVolumeSource
	u := fldPath.Union("may not specify more than 1 volume type")
	validate.Member(u, "hostPath", s.HostPath, podspec.HostPathRules)
	validate.Member(u, "gcePersistentDisk", s.GCEPersistentDisk, func(_ validate.Path, s *corev1.GCEPersistentDiskVolumeSource) {
		podspec.GCEDiskRules(fldPath.Child("persistentDisk"), s)
	})
	validate.Member(u, "awsElasticBlockStore", s.AWSElasticBlockStore, podspec.AWSDiskRules)
	validate.Member(u, "glusterfs", s.Glusterfs, glusterfsRules)
	validate.Member(u, "flocker", s.Flocker, podspec.FlockerRules)
	validate.Member(u, "nfs", s.NFS, podspec.NFSRules)
	validate.Member(u, "rbd", s.RBD, func(fldPath validate.Path, s *corev1.RBDPersistentVolumeSource) {
		fldPath.Present("monitors", len(s.CephMonitors) > 0)
		fldPath.Present("image", s.RBDImage != "")
	})
	validate.Member(u, "quobyte", s.Quobyte, podspec.QuobyteRules)
	validate.Member(u, "cephFS", s.CephFS, func(_ validate.Path, s *corev1.CephFSPersistentVolumeSource) {
		fldPath.Child("cephfs").Present("monitors", len(s.Monitors) > 0)
	})
	validate.Member(u, "iscsi", s.ISCSI, func(fldPath validate.Path, s *corev1.ISCSIPersistentVolumeSource) { iscsiRules(fldPath, name, s) })
	validate.Member(u, "cinder", s.Cinder, func(fldPath validate.Path, s *corev1.CinderPersistentVolumeSource) {
		fldPath.Present("volumeID", s.VolumeID != "")
		validate.Optional(fldPath, "secretRef", s.SecretRef, secretRules)
	})
	validate.Member(u, "fc", s.FC, podspec.FCRules)
	validate.AnyMember(u, "flexVolume", s.FlexVolume, func(fldPath validate.Path, s *corev1.FlexPersistentVolumeSource) {
		podspec.FlexRules(fldPath, s.Driver, s.Options)
	})
	validate.Member(u, "azureFile", s.AzureFile, func(fldPath validate.Path, s *corev1.AzureFilePersistentVolumeSource) {
		fldPath.Present("secretName", s.SecretName != "")
		fldPath.Present("shareName", s.ShareName != "")
		fldPath.Present("secretNamespace", s.SecretNamespace == nil || *s.SecretNamespace != "")
	})
	validate.Member(u, "vsphereVolume", s.VsphereVolume, func(fldPath validate.Path, s *corev1.VsphereVirtualDiskVolumeSource) {
		fldPath.Present("volumePath", s.VolumePath != "")
	})
	validate.Member(u, "photonPersistentDisk", s.PhotonPersistentDisk, func(fldPath validate.Path, s *corev1.PhotonPersistentDiskVolumeSource) {
		fldPath.Present("pdID", s.PdID != "")
	})
	validate.Member(u, "portworxVolume", s.PortworxVolume, func(fldPath validate.Path, s *corev1.PortworxVolumeSource) {
		fldPath.Present("volumeID", s.VolumeID != "")
	})
	validate.Member(u, "azureDisk", s.AzureDisk, podspec.AzureDiskRules)
	validate.Member(u, "scaleIO", s.ScaleIO, func(fldPath validate.Path, s *corev1.ScaleIOPersistentVolumeSource) {
		fldPath.Present("gateway", s.Gateway != "")
		fldPath.Present("system", s.System != "")
		fldPath.Present("volumeName", s.VolumeName != "")
	})
	validate.Member(u, "local", s.Local, func(local validate.Path, s *corev1.LocalVolumeSource) {
		if s.Path == "" {
			local.Required("path", "")
		} else {
			podspec.WithoutBackstep(local, "path", s.Path)
		}
		if spec.NodeAffinity == nil {
			fldPath.Required("nodeAffinity", "Local volume requires node affinity")
		}
	})
	validate.Member(u, "storageos", s.StorageOS, storageOSRules)
	validate.Member(u, "csi", s.CSI, csiRules)
	u.RequireMember("must specify a volume type")
}

func glusterfsRules(fldPath validate.Path, s *corev1.GlusterfsPersistentVolumeSource) {
	fldPath.Present("endpoints", s.EndpointsName != "")
	fldPath.Present("path", s.Path != "")
	if ns := s.EndpointsNamespace; ns != nil {
		if *ns == "" {
			fldPath.Invalid("endpointsNamespace", *ns, "if the endpointnamespace is set, it must be a valid namespace name")
			return
		}
		fldPath.Text("endpointsNamespace", *ns, validate.DNSLabel)
	}
}

func iscsiRules(fldPath validate.Path, name string, s *corev1.ISCSIPersistentVolumeSource) {
	const unknown = "must be valid format"
	fldPath.Present("targetPortal", s.TargetPortal != "")
	podspec.ISCSIPortalName(fldPath, "targetportal", s.TargetPortal, name, s.TargetPortal, s.InitiatorName)
	podspec.ISCSIQualifiedName(fldPath, s.IQN, unknown)
	fldPath.Octet("lun", s.Lun)
	fldPath.Present("secretRef", s.SecretRef != nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth)
	if s.SecretRef != nil {
		fldPath.Child("secretRef").Present("name", s.SecretRef.Name != "")
	}
	podspec.ISCSIInitiatorName(fldPath, s.InitiatorName, unknown)
}

func secretRules(fldPath validate.Path, s *corev1.SecretReference) {
	fldPath.Present("name", s.Name != "")
	fldPath.Present("namespace", s.Namespace != "")
}

func storageOSRules(fldPath validate.Path, s *corev1.StorageOSPersistentVolumeSource) {
	fldPath.RequiredText("volumeName", s.VolumeName, validate.DNSLabel)
	fldPath.OptionalText("volumeNamespace", s.VolumeNamespace, validate.DNSLabel)
	validate.Optional(fldPath, "secretRef", s.SecretRef, func(fldPath validate.Path, r *corev1.ObjectReference) {
		fldPath.Present("name", r.Name != "")
		fldPath.Present("namespace", r.Namespace != "")
	})
}

func csiRules(fldPath validate.Path, s *corev1.CSIPersistentVolumeSource) {
	podspec.CSIDriverName(fldPath, "driver", s.Driver)
	fldPath.Present("volumeHandle", s.VolumeHandle != "")
	for _, secret := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef},
		{"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		validate.Optional(fldPath, secret.name, secret.ref, func(fldPath validate.Path, r *corev1.SecretReference) {
			fldPath.RequiredText("name", r.Name, validate.DNSSubdomain)
			fldPath.RequiredText("namespace", r.Namespace, validate.DNSLabel)
		})
	}
}
