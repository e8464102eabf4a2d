package volume

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validateSource requires exactly one source. As in Kubernetes, some names in errors differ from
// those of the fields. hasAffinity reports whether the specification has a permitted node affinity.
func validateSource(fld validate.Field, name string, s *corev1.PersistentVolumeSource, hasAffinity bool) {
	u := fld.Union("may not specify more than 1 volume type")
	validate.Member(u, "hostPath", s.HostPath, podspec.ValidateHostPath)
	validate.Member(u, "gcePersistentDisk", s.GCEPersistentDisk, func(_ validate.Field, s *corev1.GCEPersistentDiskVolumeSource) {
		podspec.ValidateGCEDisk(fld.Child("persistentDisk"), s)
	})
	validate.Member(u, "awsElasticBlockStore", s.AWSElasticBlockStore, podspec.ValidateAWSDisk)
	validate.Member(u, "glusterfs", s.Glusterfs, validateGlusterfs)
	validate.Member(u, "flocker", s.Flocker, podspec.ValidateFlocker)
	validate.Member(u, "nfs", s.NFS, podspec.ValidateNFS)
	validate.Member(u, "rbd", s.RBD, func(fld validate.Field, s *corev1.RBDPersistentVolumeSource) {
		fld.RequireSet("monitors", len(s.CephMonitors) > 0)
		fld.RequireSet("image", s.RBDImage != "")
	})
	validate.Member(u, "quobyte", s.Quobyte, podspec.ValidateQuobyte)
	validate.Member(u, "cephFS", s.CephFS, func(_ validate.Field, s *corev1.CephFSPersistentVolumeSource) {
		fld.Child("cephfs").RequireSet("monitors", len(s.Monitors) > 0)
	})
	validate.Member(
		u,
		"iscsi",
		s.ISCSI,
		func(fld validate.Field, s *corev1.ISCSIPersistentVolumeSource) { validateISCSI(fld, name, s) },
	)
	validate.Member(u, "cinder", s.Cinder, func(fld validate.Field, s *corev1.CinderPersistentVolumeSource) {
		fld.RequireSet("volumeID", s.VolumeID != "")
		validate.Optional(fld, "secretRef", s.SecretRef, validateSecretReference)
	})
	validate.Member(u, "fc", s.FC, podspec.ValidateFC)
	validate.AnyMember(u, "flexVolume", s.FlexVolume, func(fld validate.Field, s *corev1.FlexPersistentVolumeSource) {
		podspec.ValidateFlex(fld, s.Driver, s.Options)
	})
	validate.Member(u, "azureFile", s.AzureFile, func(fld validate.Field, s *corev1.AzureFilePersistentVolumeSource) {
		fld.RequireSet("secretName", s.SecretName != "")
		fld.RequireSet("shareName", s.ShareName != "")
		fld.RequireSet("secretNamespace", s.SecretNamespace == nil || *s.SecretNamespace != "")
	})
	validate.Member(u, "vsphereVolume", s.VsphereVolume, func(fld validate.Field, s *corev1.VsphereVirtualDiskVolumeSource) {
		fld.RequireSet("volumePath", s.VolumePath != "")
	})
	validate.Member(
		u,
		"photonPersistentDisk",
		s.PhotonPersistentDisk,
		func(fld validate.Field, s *corev1.PhotonPersistentDiskVolumeSource) {
			fld.RequireSet("pdID", s.PdID != "")
		},
	)
	validate.Member(u, "portworxVolume", s.PortworxVolume, func(fld validate.Field, s *corev1.PortworxVolumeSource) {
		fld.RequireSet("volumeID", s.VolumeID != "")
	})
	validate.Member(u, "azureDisk", s.AzureDisk, podspec.ValidateAzureDisk)
	validate.Member(u, "scaleIO", s.ScaleIO, func(fld validate.Field, s *corev1.ScaleIOPersistentVolumeSource) {
		fld.RequireSet("gateway", s.Gateway != "")
		fld.RequireSet("system", s.System != "")
		fld.RequireSet("volumeName", s.VolumeName != "")
	})
	validate.Member(u, "local", s.Local, func(local validate.Field, s *corev1.LocalVolumeSource) {
		if s.Path == "" {
			local.Required("path", "")
		} else {
			podspec.ForbidBackstep(local, "path", s.Path)
		}
		if !hasAffinity {
			fld.Required("nodeAffinity", "Local volume requires node affinity")
		}
	})
	validate.Member(u, "storageos", s.StorageOS, validateStorageOS)
	validate.Member(u, "csi", s.CSI, validateCSI)
	u.RequireMember("must specify a volume type")
}

func validateGlusterfs(fld validate.Field, s *corev1.GlusterfsPersistentVolumeSource) {
	fld.RequireSet("endpoints", s.EndpointsName != "")
	fld.RequireSet("path", s.Path != "")
	if ns := s.EndpointsNamespace; ns != nil {
		if *ns == "" {
			fld.Invalid("endpointsNamespace", *ns, "if the endpointnamespace is set, it must be a valid namespace name")
			return
		}
		fld.CheckText("endpointsNamespace", *ns, validate.DNSLabel)
	}
}

func validateISCSI(fld validate.Field, name string, s *corev1.ISCSIPersistentVolumeSource) {
	const unknown = "must be valid format"
	fld.RequireSet("targetPortal", s.TargetPortal != "")
	podspec.ValidateISCSIPortalName(fld, "targetportal", s.TargetPortal, name, s.TargetPortal, s.InitiatorName)
	podspec.ValidateISCSIQualifiedName(fld, s.IQN, unknown)
	fld.CheckOctet("lun", s.Lun)
	fld.RequireSet("secretRef", s.SecretRef != nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth)
	if s.SecretRef != nil {
		fld.Child("secretRef").RequireSet("name", s.SecretRef.Name != "")
	}
	podspec.ValidateISCSIInitiatorName(fld, s.InitiatorName, unknown)
}

func validateSecretReference(fld validate.Field, s *corev1.SecretReference) {
	fld.RequireSet("name", s.Name != "")
	fld.RequireSet("namespace", s.Namespace != "")
}

func validateStorageOS(fld validate.Field, s *corev1.StorageOSPersistentVolumeSource) {
	fld.CheckRequiredText("volumeName", s.VolumeName, validate.DNSLabel)
	fld.CheckOptionalText("volumeNamespace", s.VolumeNamespace, validate.DNSLabel)
	validate.Optional(fld, "secretRef", s.SecretRef, func(fld validate.Field, r *corev1.ObjectReference) {
		fld.RequireSet("name", r.Name != "")
		fld.RequireSet("namespace", r.Namespace != "")
	})
}

func validateCSI(fld validate.Field, s *corev1.CSIPersistentVolumeSource) {
	podspec.ValidateCSIDriverName(fld, "driver", s.Driver)
	fld.RequireSet("volumeHandle", s.VolumeHandle != "")
	for _, secret := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef},
		{"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		validate.Optional(fld, secret.name, secret.ref, func(fld validate.Field, r *corev1.SecretReference) {
			fld.CheckRequiredText("name", r.Name, validate.DNSSubdomain)
			fld.CheckRequiredText("namespace", r.Namespace, validate.DNSLabel)
		})
	}
}
