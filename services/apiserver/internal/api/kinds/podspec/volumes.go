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

// volumeRules validates the volumes and records the valid ones. The name of the pod, if known, is
// the prefix of the names of generated claims.
func (c *check) volumeRules(fldPath validate.Path, m *metav1.ObjectMeta) {
	pod := ""
	if c.pod {
		pod = m.Name
	}
	created := validate.Set[string]{}
	for i := range c.whole.Volumes {
		if v := &c.whole.Volumes[i]; pod != "" && v.Ephemeral != nil {
			created.Add(pod + "-" + v.Name)
		}
	}
	c.volumes = make(map[string]*corev1.VolumeSource, len(c.whole.Volumes))
	names := validate.Set[string]{}
	validate.Each(fldPath, "volumes", c.whole.Volumes, func(fldPath validate.Path, v *corev1.Volume) {
		before := fldPath.ErrorCount()
		c.volumeSource(fldPath, v, pod)
		fldPath.RequiredText("name", v.Name, validate.DNSLabel)
		if names.Has(v.Name) {
			fldPath.Duplicate("name", v.Name)
		}
		if fldPath.ErrorCount() == before {
			names.Add(v.Name)
			c.volumes[v.Name] = &v.VolumeSource
		}
		if claim := v.PersistentVolumeClaim; claim != nil && created.Has(claim.ClaimName) {
			fldPath.Child("persistentVolumeClaim").Invalid("claimName", claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	})
}

// volumeSource requires exactly one source. As in Kubernetes, some names in errors differ from
// those of the fields.
func (c *check) volumeSource(fldPath validate.Path, v *corev1.Volume, pod string) {
	u := fldPath.Union("may not specify more than 1 volume type")
	validate.Member(u, "emptyDir", v.EmptyDir, func(fldPath validate.Path, s *corev1.EmptyDirVolumeSource) {
		fldPath.Absent("sizeLimit", s.SizeLimit != nil && s.SizeLimit.Sign() < 0, "SizeLimit field must be a valid resource quantity")
	})
	validate.Member(u, "hostPath", v.HostPath, HostPathRules)
	validate.Member(u, "gitRepo", v.GitRepo, func(fldPath validate.Path, s *corev1.GitRepoVolumeSource) {
		fldPath.Present("repository", s.Repository != "")
		descendingPath(fldPath, "directory", s.Directory)
	})
	memberAt(u, fldPath, "gcePersistentDisk", "persistentDisk", v.GCEPersistentDisk, GCEDiskRules)
	validate.Member(u, "awsElasticBlockStore", v.AWSElasticBlockStore, AWSDiskRules)
	validate.Member(u, "secret", v.Secret, func(fldPath validate.Path, s *corev1.SecretVolumeSource) {
		fldPath.Present("secretName", s.SecretName != "")
		fileRules(fldPath, s.DefaultMode, s.Items)
	})
	validate.Member(u, "nfs", v.NFS, NFSRules)
	validate.Member(u, "iscsi", v.ISCSI, iscsiRules)
	if s := v.ISCSI; s != nil {
		ISCSIPortalName(fldPath, "name", v.Name, v.Name, s.TargetPortal, s.InitiatorName)
	}
	validate.Member(u, "glusterfs", v.Glusterfs, func(fldPath validate.Path, s *corev1.GlusterfsVolumeSource) {
		fldPath.Present("endpoints", s.EndpointsName != "")
		fldPath.Present("path", s.Path != "")
	})
	validate.Member(u, "flocker", v.Flocker, FlockerRules)
	validate.Member(u, "persistentVolumeClaim", v.PersistentVolumeClaim, func(fldPath validate.Path, s *corev1.PersistentVolumeClaimVolumeSource) {
		fldPath.Present("claimName", s.ClaimName != "")
	})
	validate.Member(u, "rbd", v.RBD, func(fldPath validate.Path, s *corev1.RBDVolumeSource) {
		fldPath.Present("monitors", len(s.CephMonitors) > 0)
		fldPath.Present("image", s.RBDImage != "")
	})
	validate.Member(u, "cinder", v.Cinder, func(fldPath validate.Path, s *corev1.CinderVolumeSource) {
		fldPath.Present("volumeID", s.VolumeID != "")
		secretNameRules(fldPath, s.SecretRef)
	})
	memberAt(u, fldPath, "cephFS", "cephfs", v.CephFS, func(fldPath validate.Path, s *corev1.CephFSVolumeSource) {
		fldPath.Present("monitors", len(s.Monitors) > 0)
	})
	validate.Member(u, "quobyte", v.Quobyte, QuobyteRules)
	memberAt(u, fldPath, "downwarAPI", "downwardAPI", v.DownwardAPI, func(fldPath validate.Path, s *corev1.DownwardAPIVolumeSource) {
		fldPath.FileMode("defaultMode", s.DefaultMode)
		for i := range s.Items {
			downwardFileRules(fldPath, &s.Items[i])
		}
	})
	validate.Member(u, "fc", v.FC, FCRules)
	validate.Member(u, "flexVolume", v.FlexVolume, func(fldPath validate.Path, s *corev1.FlexVolumeSource) { FlexRules(fldPath, s.Driver, s.Options) })
	validate.Member(u, "configMap", v.ConfigMap, func(fldPath validate.Path, s *corev1.ConfigMapVolumeSource) {
		fldPath.Present("name", s.Name != "")
		fileRules(fldPath, s.DefaultMode, s.Items)
	})
	validate.Member(u, "azureFile", v.AzureFile, func(fldPath validate.Path, s *corev1.AzureFileVolumeSource) {
		fldPath.Present("secretName", s.SecretName != "")
		fldPath.Present("shareName", s.ShareName != "")
	})
	validate.Member(u, "vsphereVolume", v.VsphereVolume, func(fldPath validate.Path, s *corev1.VsphereVirtualDiskVolumeSource) {
		fldPath.Present("volumePath", s.VolumePath != "")
	})
	validate.Member(u, "photonPersistentDisk", v.PhotonPersistentDisk, func(fldPath validate.Path, s *corev1.PhotonPersistentDiskVolumeSource) {
		fldPath.Present("pdID", s.PdID != "")
	})
	validate.Member(u, "portworxVolume", v.PortworxVolume, func(fldPath validate.Path, s *corev1.PortworxVolumeSource) {
		fldPath.Present("volumeID", s.VolumeID != "")
	})
	validate.Member(u, "azureDisk", v.AzureDisk, AzureDiskRules)
	validate.Member(u, "storageos", v.StorageOS, func(fldPath validate.Path, s *corev1.StorageOSVolumeSource) {
		fldPath.RequiredText("volumeName", s.VolumeName, validate.DNSLabel)
		fldPath.OptionalText("volumeNamespace", s.VolumeNamespace, validate.DNSLabel)
		secretNameRules(fldPath, s.SecretRef)
	})
	validate.Member(u, "projected", v.Projected, c.projectedRules)
	validate.Member(u, "scaleIO", v.ScaleIO, func(fldPath validate.Path, s *corev1.ScaleIOVolumeSource) {
		fldPath.Present("gateway", s.Gateway != "")
		fldPath.Present("system", s.System != "")
		fldPath.Present("volumeName", s.VolumeName != "")
	})
	validate.Member(u, "csi", v.CSI, func(fldPath validate.Path, s *corev1.CSIVolumeSource) {
		CSIDriverName(fldPath, "driver", s.Driver)
		if ref := s.NodePublishSecretRef; ref != nil {
			if ref.Name == "" {
				fldPath.Child("nodePublishSecretRef").Required("name", "")
			} else {
				fldPath.Text("name", ref.Name, validate.DNSSubdomain)
			}
		}
	})
	validate.Member(u, "ephemeral", v.Ephemeral, func(path validate.Path, s *corev1.EphemeralVolumeSource) {
		if s.VolumeClaimTemplate == nil {
			path.Required("volumeClaimTemplate", "")
		} else {
			claimTemplateRules(path.Child("volumeClaimTemplate"), s.VolumeClaimTemplate)
		}
		if pod == "" || v.Name == "" {
			return
		}
		claim := pod + "-" + v.Name
		for _, msg := range validate.DNSSubdomain(claim) {
			fldPath.Invalid("name", v.Name, fmt.Sprintf("PVC name %q: %v", claim, msg))
		}
	})
	validate.Member(u, "image", v.Image, func(fldPath validate.Path, s *corev1.ImageVolumeSource) {
		fldPath.Present("reference", s.Reference != "" || !c.pod)
		pullPolicyRules(fldPath, "pullPolicy", s.PullPolicy)
	})
	u.RequireMember("must specify a volume type")
}

// memberAt is validate.Member for a field whose name in errors differs if it is the only one that
// is set.
func memberAt[T any](u *validate.Union, fldPath validate.Path, name, path string, value *T, rules func(validate.Path, *T)) {
	validate.Member(u, name, value, func(_ validate.Path, value *T) { rules(fldPath.Child(path), value) })
}

func secretNameRules(fldPath validate.Path, ref *corev1.LocalObjectReference) {
	validate.Optional(fldPath, "secretRef", ref, func(fldPath validate.Path, r *corev1.LocalObjectReference) { fldPath.Present("name", r.Name != "") })
}

// fileRules validates keys that are mapped to files.
func fileRules(fldPath validate.Path, mode *int32, items []corev1.KeyToPath) {
	fldPath.FileMode("defaultMode", mode)
	validate.Each(fldPath, "items", items, keyToPathRules)
}

func keyToPathRules(fldPath validate.Path, k *corev1.KeyToPath) {
	fldPath.Present("key", k.Key != "")
	fldPath.Present("path", k.Path != "")
	filePath(fldPath, "path", k.Path)
	fldPath.FileMode("mode", k.Mode)
}

func downwardFileRules(fldPath validate.Path, f *corev1.DownwardAPIVolumeFile) {
	fldPath.Present("path", f.Path != "")
	filePath(fldPath, "path", f.Path)
	switch {
	case f.FieldRef != nil:
		fieldRefRules(fldPath.Child("fieldRef"), f.FieldRef, volumeFields())
		if f.ResourceFieldRef != nil {
			fldPath.Invalid("", "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case f.ResourceFieldRef != nil:
		resourceFieldRules(fldPath.Child("resourceFieldRef"), f.ResourceFieldRef, true)
	default:
		fldPath.Required("", "one of fieldRef and resourceFieldRef is required")
	}
	fldPath.FileMode("mode", f.Mode)
}

// HostPathRules validates a path on the node.
func HostPathRules(fldPath validate.Path, s *corev1.HostPathVolumeSource) {
	if s.Path == "" {
		fldPath.Required("path", "")
		return
	}
	WithoutBackstep(fldPath, "path", s.Path)
	validate.OptionalOneOf(fldPath, "type", s.Type,
		corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
		corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
}

// GCEDiskRules validates a GCE disk.
func GCEDiskRules(fldPath validate.Path, s *corev1.GCEPersistentDiskVolumeSource) {
	fldPath.Present("pdName", s.PDName != "")
	fldPath.Partition("partition", s.Partition)
}

// AWSDiskRules validates an AWS disk.
func AWSDiskRules(fldPath validate.Path, s *corev1.AWSElasticBlockStoreVolumeSource) {
	fldPath.Present("volumeID", s.VolumeID != "")
	fldPath.Partition("partition", s.Partition)
}

// NFSRules validates a directory of an NFS server.
func NFSRules(fldPath validate.Path, s *corev1.NFSVolumeSource) {
	fldPath.Present("server", s.Server != "")
	fldPath.Present("path", s.Path != "")
	if !strings.HasPrefix(s.Path, "/") {
		fldPath.Invalid("path", s.Path, "must be an absolute path")
	}
}

// FlockerRules requires exactly one of the two identifiers of a data set.
func FlockerRules(fldPath validate.Path, s *corev1.FlockerVolumeSource) {
	if s.DatasetName == "" && s.DatasetUUID == "" {
		fldPath.Required("", "one of datasetName and datasetUUID is required")
	}
	if s.DatasetName != "" && s.DatasetUUID != "" {
		fldPath.Invalid("", "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(s.DatasetName, "/") {
		fldPath.Invalid("datasetName", s.DatasetName, "must not contain '/'")
	}
}

// QuobyteRules requires the hosts and ports of the registry.
func QuobyteRules(fldPath validate.Path, s *corev1.QuobyteVolumeSource) {
	const pairs, maxTenant = "must be a host:port pair or multiple pairs separated by commas", 64
	switch {
	case s.Registry == "":
		fldPath.Required("registry", pairs)
	case len(s.Tenant) > maxTenant:
		fldPath.Required("tenant", "must be a UUID and may not exceed a length of 64 characters")
	default:
		for _, pair := range strings.Split(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				fldPath.Invalid("registry", s.Registry, pairs)
			}
		}
	}
	fldPath.Present("volume", s.Volume != "")
}

// FCRules requires exactly one of the two identifiers of a Fibre Channel target.
func FCRules(fldPath validate.Path, s *corev1.FCVolumeSource) {
	if len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0 {
		fldPath.Required("targetWWNs", "must specify either targetWWNs or wwids, but not both")
	}
	if len(s.TargetWWNs) != 0 && len(s.WWIDs) != 0 {
		fldPath.Invalid("targetWWNs", s.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	if len(s.TargetWWNs) != 0 {
		if s.Lun == nil {
			fldPath.Required("lun", "lun is required if targetWWNs is specified")
		} else {
			fldPath.Octet("lun", *s.Lun)
		}
	}
}

// FlexRules rejects options in reserved domains.
func FlexRules(fldPath validate.Path, driver string, options map[string]string) {
	fldPath.Present("driver", driver != "")
	for _, key := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			fldPath.Key("options", key).Invalid("", key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

// AzureDiskRules validates an Azure disk.
func AzureDiskRules(fldPath validate.Path, s *corev1.AzureDiskVolumeSource) {
	fldPath.Present("diskName", s.DiskName != "")
	fldPath.Present("diskURI", s.DataDiskURI != "")
	validate.OptionalOneOf(fldPath, "cachingMode", s.CachingMode,
		corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	validate.OptionalOneOf(fldPath, "kind", s.Kind, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
	if s.Kind == nil {
		return
	}
	begin := "https://"
	form := "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *s.Kind == corev1.AzureManagedDisk {
		begin, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(s.DataDiskURI, begin) {
		fldPath.Add(field.NotSupported(fldPath.Child("diskURI").FieldPath(), s.DataDiskURI, []string{form}))
	}
}

// maxDriverName is the maximum length of a CSI driver's name.
const maxDriverName = 63

// CSIDriverName validates the name of a driver.
func CSIDriverName(fldPath validate.Path, name, driver string) {
	fldPath.Present(name, driver != "")
	if len(driver) > maxDriverName {
		fldPath.TooLong(name, maxDriverName)
	}
	fldPath.InvalidMessages(name, driver, validate.DNSSubdomain(strings.ToLower(driver)))
}

// maxPortalName is the maximum length of an interface name, which consists of the name of a volume
// and its portal.
const maxPortalName = 64

// iscsiNames are the formats of names (RFC 3720, 3.2.6.3; RFC 3980).
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// ISCSIPortalName limits the interface name of a volume. The error names the given field and value.
func ISCSIPortalName(fldPath validate.Path, field, value, volume, portal string, initiator *string) {
	if initiator != nil && len(volume)+1+len(portal) > maxPortalName {
		fldPath.Invalid(field, value, "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.")
	}
}

func iscsiRules(fldPath validate.Path, s *corev1.ISCSIVolumeSource) {
	const unknown = "must be valid format starting with iqn, eui, or naa"
	fldPath.Present("targetPortal", s.TargetPortal != "")
	ISCSIQualifiedName(fldPath, s.IQN, unknown)
	fldPath.Octet("lun", s.Lun)
	fldPath.Present("secretRef", s.SecretRef != nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth)
	ISCSIInitiatorName(fldPath, s.InitiatorName, unknown)
}

// ISCSIQualifiedName validates the name of a target. A name of an unknown type has the error unknown.
func ISCSIQualifiedName(fldPath validate.Path, iqn, unknown string) {
	if iqn == "" {
		fldPath.Required("iqn", "")
		return
	}
	iscsiName(fldPath, "iqn", iqn, unknown)
}

// ISCSIInitiatorName validates the name of an initiator, if there is one.
func ISCSIInitiatorName(fldPath validate.Path, name *string, unknown string) {
	if name != nil {
		iscsiName(fldPath, "initiatorname", *name, unknown)
	}
}

func iscsiName(fldPath validate.Path, field, name, unknown string) {
	for begin, form := range iscsiNames {
		if strings.HasPrefix(name, begin) {
			if !form.MatchString(name) {
				fldPath.Invalid(field, name, "must be valid format")
			}
			return
		}
	}
	fldPath.Invalid(field, name, unknown)
}
