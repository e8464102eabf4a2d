package noderestriction

import corev1 "k8s.io/api/core/v1"

// Drivers that do what volumes did that were once part of Kubernetes.
const (
	ebsDriver       = "ebs.csi.aws.com"
	azureDiskDriver = "disk.csi.azure.com"
	azureFileDriver = "file.csi.azure.com"
	gceDriver       = "pd.csi.storage.gke.io"
	cinderDriver    = "cinder.csi.openstack.org"
	vsphereDriver   = "csi.vsphere.vmware.com"
	portworxDriver  = "pxd.portworx.com"
)

// inlineDriver is the CSI driver of a volume in a pod; none of one that has none.
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

// boundDriver is the CSI driver of a volume that a claim is bound to.
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
