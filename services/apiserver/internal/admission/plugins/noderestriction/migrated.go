package noderestriction

import corev1 "k8s.io/api/core/v1"

// CSI drivers that replace in-tree volume plugins of Kubernetes.
const (
	ebsDriver       = "ebs.csi.aws.com"
	azureDiskDriver = "disk.csi.azure.com"
	azureFileDriver = "file.csi.azure.com"
	gceDriver       = "pd.csi.storage.gke.io"
	cinderDriver    = "cinder.csi.openstack.org"
	vsphereDriver   = "csi.vsphere.vmware.com"
	portworxDriver  = "pxd.portworx.com"
)

// inlineDriver returns the CSI driver of a volume that a pod defines itself, or "" if it has none.
func inlineDriver(source *corev1.VolumeSource) string {
	if source.CSI != nil {
		return source.CSI.Driver
	}
	return migratedDriver(
		source.AWSElasticBlockStore != nil,
		source.AzureDisk != nil,
		source.AzureFile != nil,
		source.GCEPersistentDisk != nil,
		source.Cinder != nil,
		source.VsphereVolume != nil,
		source.PortworxVolume != nil,
	)
}

// boundDriver returns the CSI driver of a persistent volume, or "" if it has none.
func boundDriver(source *corev1.PersistentVolumeSource) string {
	if source.CSI != nil {
		return source.CSI.Driver
	}
	return migratedDriver(
		source.AWSElasticBlockStore != nil,
		source.AzureDisk != nil,
		source.AzureFile != nil,
		source.GCEPersistentDisk != nil,
		source.Cinder != nil,
		source.VsphereVolume != nil,
		source.PortworxVolume != nil,
	)
}

// migratedDriver returns the CSI driver that replaces the in-tree plugin of a volume, or "". Each
// parameter reports whether the volume uses that plugin. At most one is true.
func migratedDriver(ebs, azureDisk, azureFile, gce, cinder, vsphere, portworx bool) string {
	switch {
	case ebs:
		return ebsDriver
	case azureDisk:
		return azureDiskDriver
	case azureFile:
		return azureFileDriver
	case gce:
		return gceDriver
	case cinder:
		return cinderDriver
	case vsphere:
		return vsphereDriver
	case portworx:
		return portworxDriver
	}
	return ""
}
