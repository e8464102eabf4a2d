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

// inlineDriver returns the CSI driver of a volume in a pod, or "".
func inlineDriver(v *corev1.VolumeSource) string {
	switch {
	case v.CSI != nil:
		return v.CSI.Driver
	case v.AWSElasticBlockStore != nil:
		return ebsDriver
	case v.AzureDisk != nil:
		return azureDiskDriver
	case v.AzureFile != nil:
		return azureFileDriver
	case v.GCEPersistentDisk != nil:
		return gceDriver
	case v.Cinder != nil:
		return cinderDriver
	case v.VsphereVolume != nil:
		return vsphereDriver
	case v.PortworxVolume != nil:
		return portworxDriver
	}
	return ""
}

// boundDriver returns the CSI driver of a persistent volume, or "".
func boundDriver(v *corev1.PersistentVolumeSource) string {
	switch {
	case v.CSI != nil:
		return v.CSI.Driver
	case v.AWSElasticBlockStore != nil:
		return ebsDriver
	case v.AzureDisk != nil:
		return azureDiskDriver
	case v.AzureFile != nil:
		return azureFileDriver
	case v.GCEPersistentDisk != nil:
		return gceDriver
	case v.Cinder != nil:
		return cinderDriver
	case v.VsphereVolume != nil:
		return vsphereDriver
	case v.PortworxVolume != nil:
		return portworxDriver
	}
	return ""
}
