package volume

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validateSource requires exactly one source. As in Kubernetes, some names in errors differ from
// those of the fields. hasAffinity reports whether the specification has a permitted node affinity.
func validateSource(fld validate.Field, name string, source *corev1.PersistentVolumeSource, hasAffinity bool) {
	union := fld.Union("may not specify more than 1 volume type")
	validate.Member(union, "hostPath", source.HostPath, podspec.ValidateHostPath)
	validate.Member(union, "gcePersistentDisk", source.GCEPersistentDisk, func(_ validate.Field, source *corev1.GCEPersistentDiskVolumeSource) {
		podspec.ValidateGCEDisk(fld.Child("persistentDisk"), source)
	})
	validate.Member(union, "awsElasticBlockStore", source.AWSElasticBlockStore, podspec.ValidateAWSDisk)
	validate.Member(union, "glusterfs", source.Glusterfs, validateGlusterfs)
	validate.Member(union, "flocker", source.Flocker, podspec.ValidateFlocker)
	validate.Member(union, "nfs", source.NFS, podspec.ValidateNFS)
	validate.Member(union, "rbd", source.RBD, func(fld validate.Field, source *corev1.RBDPersistentVolumeSource) {
		fld.RequireSet("monitors", len(source.CephMonitors) > 0)
		fld.RequireSet("image", source.RBDImage != "")
	})
	validate.Member(union, "quobyte", source.Quobyte, podspec.ValidateQuobyte)
	validate.Member(union, "cephFS", source.CephFS, func(_ validate.Field, source *corev1.CephFSPersistentVolumeSource) {
		fld.Child("cephfs").RequireSet("monitors", len(source.Monitors) > 0)
	})
	validate.Member(
		union,
		"iscsi",
		source.ISCSI,
		func(fld validate.Field, source *corev1.ISCSIPersistentVolumeSource) { validateISCSI(fld, name, source) },
	)
	validate.Member(union, "cinder", source.Cinder, func(fld validate.Field, source *corev1.CinderPersistentVolumeSource) {
		fld.RequireSet("volumeID", source.VolumeID != "")
		validate.Optional(fld, "secretRef", source.SecretRef, validateSecretReference)
	})
	validate.Member(union, "fc", source.FC, podspec.ValidateFC)
	validate.AnyMember(union, "flexVolume", source.FlexVolume, func(fld validate.Field, source *corev1.FlexPersistentVolumeSource) {
		podspec.ValidateFlex(fld, source.Driver, source.Options)
	})
	validate.Member(union, "azureFile", source.AzureFile, func(fld validate.Field, source *corev1.AzureFilePersistentVolumeSource) {
		fld.RequireSet("secretName", source.SecretName != "")
		fld.RequireSet("shareName", source.ShareName != "")
		fld.RequireSet("secretNamespace", source.SecretNamespace == nil || *source.SecretNamespace != "")
	})
	validate.Member(union, "vsphereVolume", source.VsphereVolume, func(fld validate.Field, source *corev1.VsphereVirtualDiskVolumeSource) {
		fld.RequireSet("volumePath", source.VolumePath != "")
	})
	validate.Member(
		union,
		"photonPersistentDisk",
		source.PhotonPersistentDisk,
		func(fld validate.Field, source *corev1.PhotonPersistentDiskVolumeSource) {
			fld.RequireSet("pdID", source.PdID != "")
		},
	)
	validate.Member(union, "portworxVolume", source.PortworxVolume, func(fld validate.Field, source *corev1.PortworxVolumeSource) {
		fld.RequireSet("volumeID", source.VolumeID != "")
	})
	validate.Member(union, "azureDisk", source.AzureDisk, podspec.ValidateAzureDisk)
	validate.Member(union, "scaleIO", source.ScaleIO, func(fld validate.Field, source *corev1.ScaleIOPersistentVolumeSource) {
		fld.RequireSet("gateway", source.Gateway != "")
		fld.RequireSet("system", source.System != "")
		fld.RequireSet("volumeName", source.VolumeName != "")
	})
	validate.Member(union, "local", source.Local, func(local validate.Field, source *corev1.LocalVolumeSource) {
		if source.Path == "" {
			local.Required("path", "")
		} else {
			podspec.ForbidBackstep(local, "path", source.Path)
		}
		if !hasAffinity {
			fld.Required("nodeAffinity", "Local volume requires node affinity")
		}
	})
	validate.Member(union, "storageos", source.StorageOS, validateStorageOS)
	validate.Member(union, "csi", source.CSI, validateCSI)
	union.RequireMember("must specify a volume type")
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
