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
func (c *check) volumeRules(at validate.At, m *metav1.ObjectMeta) {
	pod := ""
	if c.pod {
		pod = m.Name
	}
	made := validate.Set[string]{}
	for i := range c.whole.Volumes {
		if v := &c.whole.Volumes[i]; pod != "" && v.Ephemeral != nil {
			made.Add(pod + "-" + v.Name)
		}
	}
	c.volumes = make(map[string]*corev1.VolumeSource, len(c.whole.Volumes))
	names := validate.Set[string]{}
	validate.Each(at, "volumes", c.whole.Volumes, func(at validate.At, v *corev1.Volume) {
		before := at.Found()
		c.volumeSource(at, v, pod)
		at.RequiredText("name", v.Name, validate.DNSLabel)
		if names.Has(v.Name) {
			at.Duplicate("name", v.Name)
		}
		if at.Found() == before {
			names.Add(v.Name)
			c.volumes[v.Name] = &v.VolumeSource
		}
		if claim := v.PersistentVolumeClaim; claim != nil && made.Has(claim.ClaimName) {
			at.Child("persistentVolumeClaim").Invalid("claimName", claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	})
}

// volumeSource requires exactly one source. As in Kubernetes, some names in errors differ from
// those of the fields.
func (c *check) volumeSource(at validate.At, v *corev1.Volume, pod string) {
	u := at.Choice("may not specify more than 1 volume type")
	validate.Member(u, "emptyDir", v.EmptyDir, func(at validate.At, s *corev1.EmptyDirVolumeSource) {
		at.Absent("sizeLimit", s.SizeLimit != nil && s.SizeLimit.Sign() < 0, "SizeLimit field must be a valid resource quantity")
	})
	validate.Member(u, "hostPath", v.HostPath, HostPathRules)
	validate.Member(u, "gitRepo", v.GitRepo, func(at validate.At, s *corev1.GitRepoVolumeSource) {
		at.Present("repository", s.Repository != "")
		descendingPath(at, "directory", s.Directory)
	})
	memberAt(u, at, "gcePersistentDisk", "persistentDisk", v.GCEPersistentDisk, GCEDiskRules)
	validate.Member(u, "awsElasticBlockStore", v.AWSElasticBlockStore, AWSDiskRules)
	validate.Member(u, "secret", v.Secret, func(at validate.At, s *corev1.SecretVolumeSource) {
		at.Present("secretName", s.SecretName != "")
		fileRules(at, s.DefaultMode, s.Items)
	})
	validate.Member(u, "nfs", v.NFS, NFSRules)
	validate.Member(u, "iscsi", v.ISCSI, iscsiRules)
	portalNameRule(at, v.Name, v.ISCSI)
	validate.Member(u, "glusterfs", v.Glusterfs, func(at validate.At, s *corev1.GlusterfsVolumeSource) {
		at.Present("endpoints", s.EndpointsName != "")
		at.Present("path", s.Path != "")
	})
	validate.Member(u, "flocker", v.Flocker, FlockerRules)
	validate.Member(u, "persistentVolumeClaim", v.PersistentVolumeClaim, func(at validate.At, s *corev1.PersistentVolumeClaimVolumeSource) {
		at.Present("claimName", s.ClaimName != "")
	})
	validate.Member(u, "rbd", v.RBD, func(at validate.At, s *corev1.RBDVolumeSource) {
		at.Present("monitors", len(s.CephMonitors) > 0)
		at.Present("image", s.RBDImage != "")
	})
	validate.Member(u, "cinder", v.Cinder, func(at validate.At, s *corev1.CinderVolumeSource) {
		at.Present("volumeID", s.VolumeID != "")
		secretNameRules(at, s.SecretRef)
	})
	memberAt(u, at, "cephFS", "cephfs", v.CephFS, func(at validate.At, s *corev1.CephFSVolumeSource) {
		at.Present("monitors", len(s.Monitors) > 0)
	})
	validate.Member(u, "quobyte", v.Quobyte, QuobyteRules)
	memberAt(u, at, "downwarAPI", "downwardAPI", v.DownwardAPI, func(at validate.At, s *corev1.DownwardAPIVolumeSource) {
		at.FileMode("defaultMode", s.DefaultMode)
		for i := range s.Items {
			downwardFileRules(at, &s.Items[i])
		}
	})
	validate.Member(u, "fc", v.FC, FCRules)
	validate.Member(u, "flexVolume", v.FlexVolume, func(at validate.At, s *corev1.FlexVolumeSource) { FlexRules(at, s.Driver, s.Options) })
	validate.Member(u, "configMap", v.ConfigMap, func(at validate.At, s *corev1.ConfigMapVolumeSource) {
		at.Present("name", s.Name != "")
		fileRules(at, s.DefaultMode, s.Items)
	})
	validate.Member(u, "azureFile", v.AzureFile, func(at validate.At, s *corev1.AzureFileVolumeSource) {
		at.Present("secretName", s.SecretName != "")
		at.Present("shareName", s.ShareName != "")
	})
	validate.Member(u, "vsphereVolume", v.VsphereVolume, func(at validate.At, s *corev1.VsphereVirtualDiskVolumeSource) {
		at.Present("volumePath", s.VolumePath != "")
	})
	validate.Member(u, "photonPersistentDisk", v.PhotonPersistentDisk, func(at validate.At, s *corev1.PhotonPersistentDiskVolumeSource) {
		at.Present("pdID", s.PdID != "")
	})
	validate.Member(u, "portworxVolume", v.PortworxVolume, func(at validate.At, s *corev1.PortworxVolumeSource) {
		at.Present("volumeID", s.VolumeID != "")
	})
	validate.Member(u, "azureDisk", v.AzureDisk, AzureDiskRules)
	validate.Member(u, "storageos", v.StorageOS, func(at validate.At, s *corev1.StorageOSVolumeSource) {
		at.RequiredText("volumeName", s.VolumeName, validate.DNSLabel)
		at.OptionalText("volumeNamespace", s.VolumeNamespace, validate.DNSLabel)
		secretNameRules(at, s.SecretRef)
	})
	validate.Member(u, "projected", v.Projected, c.projectedRules)
	validate.Member(u, "scaleIO", v.ScaleIO, func(at validate.At, s *corev1.ScaleIOVolumeSource) {
		at.Present("gateway", s.Gateway != "")
		at.Present("system", s.System != "")
		at.Present("volumeName", s.VolumeName != "")
	})
	validate.Member(u, "csi", v.CSI, func(at validate.At, s *corev1.CSIVolumeSource) {
		CSIDriverName(at, "driver", s.Driver)
		if ref := s.NodePublishSecretRef; ref != nil {
			if ref.Name == "" {
				at.Child("nodePublishSecretRef").Required("name", "")
			} else {
				at.Text("name", ref.Name, validate.DNSSubdomain)
			}
		}
	})
	validate.Member(u, "ephemeral", v.Ephemeral, func(place validate.At, s *corev1.EphemeralVolumeSource) {
		if s.VolumeClaimTemplate == nil {
			place.Required("volumeClaimTemplate", "")
		} else {
			claimTemplateRules(place.Child("volumeClaimTemplate"), s.VolumeClaimTemplate)
		}
		if pod == "" || v.Name == "" {
			return
		}
		claim := pod + "-" + v.Name
		for _, msg := range validate.DNSSubdomain(claim) {
			at.Invalid("name", v.Name, fmt.Sprintf("PVC name %q: %v", claim, msg))
		}
	})
	validate.Member(u, "image", v.Image, func(at validate.At, s *corev1.ImageVolumeSource) {
		at.Present("reference", s.Reference != "" || !c.pod)
		pullPolicyRules(at, "pullPolicy", s.PullPolicy)
	})
	u.Some("must specify a volume type")
}

// memberAt is validate.Member for a field whose name in errors differs if it is the only one that
// is set.
func memberAt[T any](u *validate.Union, at validate.At, name, place string, value *T, rules func(validate.At, *T)) {
	validate.Member(u, name, value, func(_ validate.At, value *T) { rules(at.Child(place), value) })
}

func secretNameRules(at validate.At, ref *corev1.LocalObjectReference) {
	validate.Optional(at, "secretRef", ref, func(at validate.At, r *corev1.LocalObjectReference) { at.Present("name", r.Name != "") })
}

// fileRules validates keys that are mapped to files.
func fileRules(at validate.At, mode *int32, items []corev1.KeyToPath) {
	at.FileMode("defaultMode", mode)
	validate.Each(at, "items", items, keyToPathRules)
}

func keyToPathRules(at validate.At, k *corev1.KeyToPath) {
	at.Present("key", k.Key != "")
	at.Present("path", k.Path != "")
	filePath(at, "path", k.Path)
	at.FileMode("mode", k.Mode)
}

func downwardFileRules(at validate.At, f *corev1.DownwardAPIVolumeFile) {
	at.Present("path", f.Path != "")
	filePath(at, "path", f.Path)
	switch {
	case f.FieldRef != nil:
		fieldRefRules(at.Child("fieldRef"), f.FieldRef, volumeFields())
		if f.ResourceFieldRef != nil {
			at.Invalid("", "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case f.ResourceFieldRef != nil:
		resourceFieldRules(at.Child("resourceFieldRef"), f.ResourceFieldRef, true)
	default:
		at.Required("", "one of fieldRef and resourceFieldRef is required")
	}
	at.FileMode("mode", f.Mode)
}

// HostPathRules validates a path on the node.
func HostPathRules(at validate.At, s *corev1.HostPathVolumeSource) {
	if s.Path == "" {
		at.Required("path", "")
		return
	}
	WithoutBackstep(at, "path", s.Path)
	validate.OptionalOneOf(at, "type", s.Type,
		corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
		corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
}

// GCEDiskRules validates a GCE disk.
func GCEDiskRules(at validate.At, s *corev1.GCEPersistentDiskVolumeSource) {
	at.Present("pdName", s.PDName != "")
	at.Partition("partition", s.Partition)
}

// AWSDiskRules validates an AWS disk.
func AWSDiskRules(at validate.At, s *corev1.AWSElasticBlockStoreVolumeSource) {
	at.Present("volumeID", s.VolumeID != "")
	at.Partition("partition", s.Partition)
}

// NFSRules validates a directory of an NFS server.
func NFSRules(at validate.At, s *corev1.NFSVolumeSource) {
	at.Present("server", s.Server != "")
	at.Present("path", s.Path != "")
	if !strings.HasPrefix(s.Path, "/") {
		at.Invalid("path", s.Path, "must be an absolute path")
	}
}

// FlockerRules requires exactly one of the two identifiers of a data set.
func FlockerRules(at validate.At, s *corev1.FlockerVolumeSource) {
	if s.DatasetName == "" && s.DatasetUUID == "" {
		at.Required("", "one of datasetName and datasetUUID is required")
	}
	if s.DatasetName != "" && s.DatasetUUID != "" {
		at.Invalid("", "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(s.DatasetName, "/") {
		at.Invalid("datasetName", s.DatasetName, "must not contain '/'")
	}
}

// QuobyteRules requires the hosts and ports of the registry.
func QuobyteRules(at validate.At, s *corev1.QuobyteVolumeSource) {
	const pairs, maxTenant = "must be a host:port pair or multiple pairs separated by commas", 64
	switch {
	case s.Registry == "":
		at.Required("registry", pairs)
	case len(s.Tenant) > maxTenant:
		at.Required("tenant", "must be a UUID and may not exceed a length of 64 characters")
	default:
		for _, pair := range strings.Split(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				at.Invalid("registry", s.Registry, pairs)
			}
		}
	}
	at.Present("volume", s.Volume != "")
}

// FCRules requires exactly one of the two identifiers of a Fibre Channel target.
func FCRules(at validate.At, s *corev1.FCVolumeSource) {
	if len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0 {
		at.Required("targetWWNs", "must specify either targetWWNs or wwids, but not both")
	}
	if len(s.TargetWWNs) != 0 && len(s.WWIDs) != 0 {
		at.Invalid("targetWWNs", s.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	if len(s.TargetWWNs) != 0 {
		if s.Lun == nil {
			at.Required("lun", "lun is required if targetWWNs is specified")
		} else {
			at.Octet("lun", *s.Lun)
		}
	}
}

// FlexRules rejects options in reserved domains.
func FlexRules(at validate.At, driver string, options map[string]string) {
	at.Present("driver", driver != "")
	for _, key := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			at.Key("options", key).Invalid("", key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

// AzureDiskRules validates an Azure disk.
func AzureDiskRules(at validate.At, s *corev1.AzureDiskVolumeSource) {
	at.Present("diskName", s.DiskName != "")
	at.Present("diskURI", s.DataDiskURI != "")
	validate.OptionalOneOf(at, "cachingMode", s.CachingMode,
		corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	validate.OptionalOneOf(at, "kind", s.Kind, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
	if s.Kind == nil {
		return
	}
	begin := "https://"
	form := "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *s.Kind == corev1.AzureManagedDisk {
		begin, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(s.DataDiskURI, begin) {
		at.Add(field.NotSupported(at.Child("diskURI").Path(), s.DataDiskURI, []string{form}))
	}
}

// maxDriverName is the maximum length of a CSI driver's name.
const maxDriverName = 63

// CSIDriverName validates the name of a driver.
func CSIDriverName(at validate.At, name, driver string) {
	at.Present(name, driver != "")
	if len(driver) > maxDriverName {
		at.TooLong(name, maxDriverName)
	}
	at.Messages(name, driver, validate.DNSSubdomain(strings.ToLower(driver)))
}

const (
	// maxPortalName is the maximum length of an interface name, which consists of the name of a
	// volume and its portal.
	maxPortalName     = 64
	portalNameTooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
)

// iscsiNames are the formats of names (RFC 3720, 3.2.6.3; RFC 3980).
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// portalNameRule limits the interface name of a volume.
func portalNameRule(at validate.At, volume string, s *corev1.ISCSIVolumeSource) {
	if s != nil && s.InitiatorName != nil && len(volume)+1+len(s.TargetPortal) > maxPortalName {
		at.Invalid("name", volume, portalNameTooLong)
	}
}

// ISCSIRules validates the target of a named volume.
func ISCSIRules(at validate.At, volume string, s *corev1.ISCSIVolumeSource) {
	iscsiRules(at, s)
	if s.InitiatorName != nil && len(volume)+1+len(s.TargetPortal) > maxPortalName {
		at.Invalid("targetportal", s.TargetPortal, portalNameTooLong)
	}
}

func iscsiRules(at validate.At, s *corev1.ISCSIVolumeSource) {
	at.Present("targetPortal", s.TargetPortal != "")
	if s.IQN == "" {
		at.Required("iqn", "")
	} else {
		iscsiName(at, "iqn", s.IQN)
	}
	at.Octet("lun", s.Lun)
	at.Present("secretRef", s.SecretRef != nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth)
	if s.InitiatorName != nil {
		iscsiName(at, "initiatorname", *s.InitiatorName)
	}
}

func iscsiName(at validate.At, field, name string) {
	for begin, form := range iscsiNames {
		if strings.HasPrefix(name, begin) {
			if !form.MatchString(name) {
				at.Invalid(field, name, "must be valid format")
			}
			return
		}
	}
	at.Invalid(field, name, "must be valid format starting with iqn, eui, or naa")
}
