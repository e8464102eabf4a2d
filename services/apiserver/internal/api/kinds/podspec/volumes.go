package podspec

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry/validate"
)

// validateVolumes validates the volumes and records the valid ones. m is the metadata of the pod or
// template.
func (c *check) validateVolumes(fld validate.Field, m *metav1.ObjectMeta) {
	podName := "" // unknown for a template
	if c.isPod {
		podName = m.Name
	}
	generatedClaims := validate.Set[string]{}
	for i := range c.spec.Volumes {
		if volume := &c.spec.Volumes[i]; podName != "" && volume.Ephemeral != nil {
			generatedClaims.Add(podName + "-" + volume.Name)
		}
	}
	c.volumes = make(map[string]*corev1.VolumeSource, len(c.spec.Volumes))
	names := validate.Set[string]{}
	validate.Each(fld, "volumes", c.spec.Volumes, func(fld validate.Field, volume *corev1.Volume) {
		before := fld.ErrorCount()
		c.validateVolumeSource(fld, volume, podName)
		fld.CheckRequiredText("name", volume.Name, validate.DNSLabel)
		if names.Has(volume.Name) {
			fld.Duplicate("name", volume.Name)
		}
		if fld.ErrorCount() == before {
			names.Add(volume.Name)
			c.volumes[volume.Name] = &volume.VolumeSource
		}
		if claim := volume.PersistentVolumeClaim; claim != nil && generatedClaims.Has(claim.ClaimName) {
			fld.Child("persistentVolumeClaim").Invalid("claimName", claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	})
}

// validateVolumeSource requires exactly one source. podName is empty if it is not known. As in
// Kubernetes, some names in errors differ from those of the fields.
func (c *check) validateVolumeSource(fld validate.Field, volume *corev1.Volume, podName string) {
	union := fld.Union("may not specify more than 1 volume type")
	validate.Member(union, "emptyDir", volume.EmptyDir, func(fld validate.Field, source *corev1.EmptyDirVolumeSource) {
		fld.ForbidSet("sizeLimit", source.SizeLimit != nil && source.SizeLimit.Sign() < 0, "SizeLimit field must be a valid resource quantity")
	})
	validate.Member(union, "hostPath", volume.HostPath, ValidateHostPath)
	validate.Member(union, "gitRepo", volume.GitRepo, func(fld validate.Field, source *corev1.GitRepoVolumeSource) {
		fld.RequireSet("repository", source.Repository != "")
		validateDescendingPath(fld, "directory", source.Directory)
	})
	addMemberAt(union, fld, "gcePersistentDisk", "persistentDisk", volume.GCEPersistentDisk, ValidateGCEDisk)
	validate.Member(union, "awsElasticBlockStore", volume.AWSElasticBlockStore, ValidateAWSDisk)
	validate.Member(union, "secret", volume.Secret, func(fld validate.Field, source *corev1.SecretVolumeSource) {
		fld.RequireSet("secretName", source.SecretName != "")
		validateFiles(fld, source.DefaultMode, source.Items)
	})
	validate.Member(union, "nfs", volume.NFS, ValidateNFS)
	validate.Member(union, "iscsi", volume.ISCSI, validateISCSI)
	if source := volume.ISCSI; source != nil {
		ValidateISCSIPortalName(fld, "name", volume.Name, volume.Name, source.TargetPortal, source.InitiatorName)
	}
	validate.Member(union, "glusterfs", volume.Glusterfs, func(fld validate.Field, source *corev1.GlusterfsVolumeSource) {
		fld.RequireSet("endpoints", source.EndpointsName != "")
		fld.RequireSet("path", source.Path != "")
	})
	validate.Member(union, "flocker", volume.Flocker, ValidateFlocker)
	validate.Member(
		union,
		"persistentVolumeClaim",
		volume.PersistentVolumeClaim,
		func(fld validate.Field, source *corev1.PersistentVolumeClaimVolumeSource) {
			fld.RequireSet("claimName", source.ClaimName != "")
		},
	)
	validate.Member(union, "rbd", volume.RBD, func(fld validate.Field, source *corev1.RBDVolumeSource) {
		fld.RequireSet("monitors", len(source.CephMonitors) > 0)
		fld.RequireSet("image", source.RBDImage != "")
	})
	validate.Member(union, "cinder", volume.Cinder, func(fld validate.Field, source *corev1.CinderVolumeSource) {
		fld.RequireSet("volumeID", source.VolumeID != "")
		validateSecretReference(fld, source.SecretRef)
	})
	addMemberAt(union, fld, "cephFS", "cephfs", volume.CephFS, func(fld validate.Field, source *corev1.CephFSVolumeSource) {
		fld.RequireSet("monitors", len(source.Monitors) > 0)
	})
	validate.Member(union, "quobyte", volume.Quobyte, ValidateQuobyte)
	addMemberAt(union, fld, "downwarAPI", "downwardAPI", volume.DownwardAPI, func(fld validate.Field, source *corev1.DownwardAPIVolumeSource) {
		fld.CheckFileMode("defaultMode", source.DefaultMode)
		for i := range source.Items {
			validateDownwardFile(fld, &source.Items[i])
		}
	})
	validate.Member(union, "fc", volume.FC, ValidateFC)
	validate.Member(
		union,
		"flexVolume",
		volume.FlexVolume,
		func(fld validate.Field, source *corev1.FlexVolumeSource) {
			ValidateFlex(fld, source.Driver, source.Options)
		},
	)
	validate.Member(union, "configMap", volume.ConfigMap, func(fld validate.Field, source *corev1.ConfigMapVolumeSource) {
		fld.RequireSet("name", source.Name != "")
		validateFiles(fld, source.DefaultMode, source.Items)
	})
	validate.Member(union, "azureFile", volume.AzureFile, func(fld validate.Field, source *corev1.AzureFileVolumeSource) {
		fld.RequireSet("secretName", source.SecretName != "")
		fld.RequireSet("shareName", source.ShareName != "")
	})
	validate.Member(union, "vsphereVolume", volume.VsphereVolume, func(fld validate.Field, source *corev1.VsphereVirtualDiskVolumeSource) {
		fld.RequireSet("volumePath", source.VolumePath != "")
	})
	validate.Member(
		union,
		"photonPersistentDisk",
		volume.PhotonPersistentDisk,
		func(fld validate.Field, source *corev1.PhotonPersistentDiskVolumeSource) {
			fld.RequireSet("pdID", source.PdID != "")
		},
	)
	validate.Member(union, "portworxVolume", volume.PortworxVolume, func(fld validate.Field, source *corev1.PortworxVolumeSource) {
		fld.RequireSet("volumeID", source.VolumeID != "")
	})
	validate.Member(union, "azureDisk", volume.AzureDisk, ValidateAzureDisk)
	validate.Member(union, "storageos", volume.StorageOS, func(fld validate.Field, source *corev1.StorageOSVolumeSource) {
		fld.CheckRequiredText("volumeName", source.VolumeName, validate.DNSLabel)
		fld.CheckOptionalText("volumeNamespace", source.VolumeNamespace, validate.DNSLabel)
		validateSecretReference(fld, source.SecretRef)
	})
	validate.Member(union, "projected", volume.Projected, c.validateProjectedVolume)
	validate.Member(union, "scaleIO", volume.ScaleIO, func(fld validate.Field, source *corev1.ScaleIOVolumeSource) {
		fld.RequireSet("gateway", source.Gateway != "")
		fld.RequireSet("system", source.System != "")
		fld.RequireSet("volumeName", source.VolumeName != "")
	})
	validate.Member(union, "csi", volume.CSI, func(fld validate.Field, source *corev1.CSIVolumeSource) {
		ValidateCSIDriverName(fld, "driver", source.Driver)
		if ref := source.NodePublishSecretRef; ref != nil {
			if ref.Name == "" {
				fld.Child("nodePublishSecretRef").Required("name", "")
			} else {
				fld.CheckText("name", ref.Name, validate.DNSSubdomain)
			}
		}
	})
	validate.Member(union, "ephemeral", volume.Ephemeral, func(path validate.Field, source *corev1.EphemeralVolumeSource) {
		if source.VolumeClaimTemplate == nil {
			path.Required("volumeClaimTemplate", "")
		} else {
			validateClaimTemplate(path.Child("volumeClaimTemplate"), source.VolumeClaimTemplate)
		}
		if podName == "" || volume.Name == "" {
			return
		}
		claim := podName + "-" + volume.Name
		for _, msg := range validate.DNSSubdomain(claim) {
			fld.Invalid("name", volume.Name, fmt.Sprintf("PVC name %q: %v", claim, msg))
		}
	})
	validate.Member(union, "image", volume.Image, func(fld validate.Field, source *corev1.ImageVolumeSource) {
		fld.RequireSet("reference", source.Reference != "" || !c.isPod)
		validatePullPolicy(fld, "pullPolicy", source.PullPolicy)
	})
	union.RequireMember("must specify a volume type")
}

// addMemberAt is validate.Member for a field that has two names in errors: name if another source is
// set as well, and path in errors of the source itself.
func addMemberAt[T any](u *validate.Union, fld validate.Field, name, path string, value *T, rules func(validate.Field, *T)) {
	validate.Member(u, name, value, func(_ validate.Field, value *T) { rules(fld.Child(path), value) })
}

// validateSecretReference requires the name of a secret, if there is a reference.
func validateSecretReference(fld validate.Field, ref *corev1.LocalObjectReference) {
	validate.Optional(
		fld,
		"secretRef",
		ref,
		func(fld validate.Field, r *corev1.LocalObjectReference) { fld.RequireSet("name", r.Name != "") },
	)
}

// ValidateHostPath validates a path on the node.
func ValidateHostPath(fld validate.Field, hostPathVolumeSource *corev1.HostPathVolumeSource) {
	if hostPathVolumeSource.Path == "" {
		fld.Required("path", "")
		return
	}
	ForbidBackstep(fld, "path", hostPathVolumeSource.Path)
	validate.OptionalOneOf(fld, "type", hostPathVolumeSource.Type,
		corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
		corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
}

// ValidateGCEDisk validates a GCE disk.
func ValidateGCEDisk(fld validate.Field, s *corev1.GCEPersistentDiskVolumeSource) {
	fld.RequireSet("pdName", s.PDName != "")
	fld.CheckPartition("partition", s.Partition)
}

// ValidateAWSDisk validates an AWS disk.
func ValidateAWSDisk(fld validate.Field, s *corev1.AWSElasticBlockStoreVolumeSource) {
	fld.RequireSet("volumeID", s.VolumeID != "")
	fld.CheckPartition("partition", s.Partition)
}

// ValidateNFS validates a directory of an NFS server.
func ValidateNFS(fld validate.Field, nfs *corev1.NFSVolumeSource) {
	fld.RequireSet("server", nfs.Server != "")
	fld.RequireSet("path", nfs.Path != "")
	if !strings.HasPrefix(nfs.Path, "/") {
		fld.Invalid("path", nfs.Path, "must be an absolute path")
	}
}

// ValidateFlocker requires exactly one of the two identifiers of a data set.
func ValidateFlocker(fld validate.Field, flockerVolumeSource *corev1.FlockerVolumeSource) {
	if flockerVolumeSource.DatasetName == "" && flockerVolumeSource.DatasetUUID == "" {
		fld.Required("", "one of datasetName and datasetUUID is required")
	}
	if flockerVolumeSource.DatasetName != "" && flockerVolumeSource.DatasetUUID != "" {
		fld.Invalid("", "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(flockerVolumeSource.DatasetName, "/") {
		fld.Invalid("datasetName", flockerVolumeSource.DatasetName, "must not contain '/'")
	}
}

// ValidateQuobyte requires the hosts and ports of the registry.
func ValidateQuobyte(fld validate.Field, source *corev1.QuobyteVolumeSource) {
	const pairs, maxTenant = "must be a host:port pair or multiple pairs separated by commas", 64
	switch {
	case source.Registry == "":
		fld.Required("registry", pairs)
	case len(source.Tenant) > maxTenant:
		fld.Required("tenant", "must be a UUID and may not exceed a length of 64 characters")
	default:
		for _, pair := range strings.Split(source.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				fld.Invalid("registry", source.Registry, pairs)
			}
		}
	}
	fld.RequireSet("volume", source.Volume != "")
}

// ValidateFC requires exactly one of the two identifiers of a Fibre Channel target.
func ValidateFC(fld validate.Field, fc *corev1.FCVolumeSource) {
	if len(fc.TargetWWNs) == 0 && len(fc.WWIDs) == 0 {
		fld.Required("targetWWNs", "must specify either targetWWNs or wwids, but not both")
	}
	if len(fc.TargetWWNs) != 0 && len(fc.WWIDs) != 0 {
		fld.Invalid("targetWWNs", fc.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	if len(fc.TargetWWNs) != 0 {
		if fc.Lun == nil {
			fld.Required("lun", "lun is required if targetWWNs is specified")
		} else {
			fld.CheckOctet("lun", *fc.Lun)
		}
	}
}

// ValidateFlex rejects options in reserved domains.
func ValidateFlex(fld validate.Field, driver string, options map[string]string) {
	fld.RequireSet("driver", driver != "")
	for _, key := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			fld.Key("options", key).Invalid("", key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

// ValidateAzureDisk validates an Azure disk.
func ValidateAzureDisk(fld validate.Field, source *corev1.AzureDiskVolumeSource) {
	fld.RequireSet("diskName", source.DiskName != "")
	fld.RequireSet("diskURI", source.DataDiskURI != "")
	validate.OptionalOneOf(fld, "cachingMode", source.CachingMode,
		corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	validate.OptionalOneOf(fld, "kind", source.Kind, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
	if source.Kind == nil {
		return
	}
	prefix := "https://"
	example := "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *source.Kind == corev1.AzureManagedDisk {
		prefix = "/subscriptions/"
		example = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(source.DataDiskURI, prefix) {
		fld.Add(field.NotSupported(fld.Child("diskURI").FieldPath(), source.DataDiskURI, []string{example}))
	}
}

// maxDriverName is the maximum length of a CSI driver's name.
const maxDriverName = 63

// ValidateCSIDriverName validates the name of a driver.
func ValidateCSIDriverName(fld validate.Field, name, driver string) {
	fld.RequireSet(name, driver != "")
	if len(driver) > maxDriverName {
		fld.TooLong(name, maxDriverName)
	}
	fld.InvalidMessages(name, driver, validate.DNSSubdomain(strings.ToLower(driver)))
}

// maxPortalName is the maximum length of an interface name, which consists of the name of a volume
// and its portal.
const maxPortalName = 64

// iscsiNames holds the patterns of names by their prefix (RFC 3720, 3.2.6.3; RFC 3980).
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// ValidateISCSIPortalName limits the interface name of a volume. The error names the given field
// and value.
func ValidateISCSIPortalName(fld validate.Field, field, value, volume, portal string, initiator *string) {
	if initiator != nil && len(volume)+1+len(portal) > maxPortalName {
		fld.Invalid(field, value,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.")
	}
}

// validateISCSI validates an iSCSI target, which needs a secret for CHAP.
func validateISCSI(fld validate.Field, iscsi *corev1.ISCSIVolumeSource) {
	const unknown = "must be valid format starting with iqn, eui, or naa"
	fld.RequireSet("targetPortal", iscsi.TargetPortal != "")
	ValidateISCSIQualifiedName(fld, iscsi.IQN, unknown)
	fld.CheckOctet("lun", iscsi.Lun)
	fld.RequireSet("secretRef", iscsi.SecretRef != nil || !iscsi.DiscoveryCHAPAuth && !iscsi.SessionCHAPAuth)
	ValidateISCSIInitiatorName(fld, iscsi.InitiatorName, unknown)
}

// ValidateISCSIQualifiedName validates the name of a target. A name of an unknown type has the
// error unknown.
func ValidateISCSIQualifiedName(fld validate.Field, iqn, unknown string) {
	if iqn == "" {
		fld.Required("iqn", "")
		return
	}
	validateISCSIName(fld, "iqn", iqn, unknown)
}

// ValidateISCSIInitiatorName validates the name of an initiator, if there is one.
func ValidateISCSIInitiatorName(fld validate.Field, name *string, unknown string) {
	if name != nil {
		validateISCSIName(fld, "initiatorname", *name, unknown)
	}
}

// validateISCSIName requires a name in the format that its prefix states.
func validateISCSIName(fld validate.Field, field, name, unknown string) {
	for prefix, pattern := range iscsiNames {
		if strings.HasPrefix(name, prefix) {
			if !pattern.MatchString(name) {
				fld.Invalid(field, name, "must be valid format")
			}
			return
		}
	}
	fld.Invalid(field, name, unknown)
}
