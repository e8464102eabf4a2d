package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// referenceSet collects the referenced objects without duplicates.
type referenceSet struct {
	list []object
	seen map[object]bool
}

// add adds an object once.
func (r *referenceSet) add(kind Kind, namespace, name string) {
	o := object{kind, namespace, name}
	if name == "" || r.seen[o] {
		return
	}
	if r.seen == nil {
		r.seen = map[object]bool{}
	}
	r.seen[o] = true
	r.list = append(r.list, o)
}

// ForbiddenMirrorPodReference describes a reference of a pod that a mirror pod must not have, or
// returns "". The description is usually the resource of the object that the reference would give
// to the pod's node.
func ForbiddenMirrorPodReference(pod *corev1.Pod) string {
	if len(pod.Spec.ResourceClaims) > 0 { // created from a template, or already existing
		return "resourceclaims"
	}
	for i := range pod.Spec.Volumes {
		v := pod.Spec.Volumes[i].Projected
		if v != nil && slices.ContainsFunc(v.Sources,
			func(s corev1.VolumeProjection) bool { return s.ClusterTrustBundle != nil }) {
			return "clustertrustbundles"
		}
	}
	for _, o := range referencedObjects(pod) {
		switch o.kind {
		case ServiceAccount:
			return "a service account"
		case Secret:
			return "secrets"
		case ConfigMap:
			return "configmaps"
		case PersistentVolumeClaim:
			return "persistentvolumeclaims"
		}
	}
	return ""
}

// UsesSecrets reports whether a pod references a secret.
func UsesSecrets(p *corev1.Pod) bool {
	return slices.ContainsFunc(referencedObjects(p), func(o object) bool { return o.kind == Secret })
}

// PodPaths returns the JSON paths of the pod fields that Graph.Set reads, which are those that
// podRefs reads.
func PodPaths() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.annotations",
		"spec.nodeName", "spec.serviceAccountName", "spec.serviceAccount", "spec.imagePullSecrets", "spec.volumes",
		"spec.resourceClaims",
		"spec.initContainers.env.valueFrom", "spec.initContainers.envFrom", "spec.containers.env.valueFrom",
		"spec.containers.envFrom",
		"spec.ephemeralContainers", "status.resourceClaimStatuses",
	}
}

// podRefs returns the objects that belong to a node because of a pod. A mirror pod adds none,
// because the node creates it.
func podRefs(p *corev1.Pod) []object {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return nil
	}
	return referencedObjects(p)
}

// referencedObjects returns the objects that a pod references.
func referencedObjects(pod *corev1.Pod) []object {
	found := &referenceSet{}
	add := func(kind Kind, name string) { found.add(kind, pod.Namespace, name) }
	add(ServiceAccount, pod.Spec.ServiceAccountName)
	for _, s := range pod.Spec.ImagePullSecrets {
		add(Secret, s.Name)
	}
	for i := range pod.Spec.InitContainers {
		addEnvRefs(add, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		addEnvRefs(add, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		addEnvRefs(add, &c)
	}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		for _, name := range secretsOfPodVolume(volume) {
			add(Secret, name)
		}
		if volume.ConfigMap != nil {
			add(ConfigMap, volume.ConfigMap.Name)
		}
		if volume.PersistentVolumeClaim != nil {
			add(PersistentVolumeClaim, volume.PersistentVolumeClaim.ClaimName)
		} else if volume.Ephemeral != nil {
			add(PersistentVolumeClaim, pod.Name+"-"+volume.Name)
		}
		if volume.Projected == nil {
			continue
		}
		for _, volumeProjection := range volume.Projected.Sources {
			if volumeProjection.Secret != nil {
				add(Secret, volumeProjection.Secret.Name)
			}
			if volumeProjection.ConfigMap != nil {
				add(ConfigMap, volumeProjection.ConfigMap.Name)
			}
		}
	}
	for i := range pod.Spec.ResourceClaims {
		add(ResourceClaim, resourceClaimName(pod, &pod.Spec.ResourceClaims[i]))
	}
	return found.list
}

// resourceClaimName returns the name of the claim for an entry of a pod: either the claim that the
// entry names, or the claim that was created for it.
func resourceClaimName(p *corev1.Pod, podResourceClaim *corev1.PodResourceClaim) string {
	if podResourceClaim.ResourceClaimName != nil {
		return *podResourceClaim.ResourceClaimName
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name == podResourceClaim.Name && s.ResourceClaimName != nil {
			return *s.ResourceClaimName
		}
	}
	return ""
}

// addEnvRefs adds the Secrets and ConfigMaps of a container's environment.
func addEnvRefs(add func(Kind, string), container *corev1.Container) {
	for _, e := range container.EnvFrom {
		if e.SecretRef != nil {
			add(Secret, e.SecretRef.Name)
		}
		if e.ConfigMapRef != nil {
			add(ConfigMap, e.ConfigMapRef.Name)
		}
	}
	for _, e := range container.Env {
		if e.ValueFrom == nil {
			continue
		}
		if e.ValueFrom.SecretKeyRef != nil {
			add(Secret, e.ValueFrom.SecretKeyRef.Name)
		}
		if e.ValueFrom.ConfigMapKeyRef != nil {
			add(ConfigMap, e.ValueFrom.ConfigMapKeyRef.Name)
		}
	}
}

// secretsOfPodVolume returns the names of the secrets that a volume of a pod needs.
func secretsOfPodVolume(volume *corev1.Volume) []string {
	local := (*corev1.LocalObjectReference)(nil)
	switch {
	case volume.Secret != nil:
		return []string{volume.Secret.SecretName}
	case volume.AzureFile != nil:
		return []string{volume.AzureFile.SecretName}
	default:
		switch {
		case volume.CephFS != nil:
			local = volume.CephFS.SecretRef
		case volume.Cinder != nil:
			local = volume.Cinder.SecretRef
		case volume.FlexVolume != nil:
			local = volume.FlexVolume.SecretRef
		case volume.RBD != nil:
			local = volume.RBD.SecretRef
		case volume.ScaleIO != nil:
			local = volume.ScaleIO.SecretRef
		case volume.ISCSI != nil:
			local = volume.ISCSI.SecretRef
		case volume.StorageOS != nil:
			local = volume.StorageOS.SecretRef
		case volume.CSI != nil:
			local = volume.CSI.NodePublishSecretRef
		}
		if local != nil {
			return []string{local.Name}
		}
	}
	return nil
}

// secretsOfVolume returns the secrets that a kubelet needs to mount a volume. A secret without a
// namespace is in the namespace of the claim.
func secretsOfVolume(persistentVolume *corev1.PersistentVolume) []object {
	found := &referenceSet{}
	add := func(namespace, name string) {
		if namespace == "" {
			namespace = persistentVolume.Spec.ClaimRef.Namespace
		}
		found.add(Secret, namespace, name)
	}
	ref := func(s *corev1.SecretReference) {
		if s != nil {
			add(s.Namespace, s.Name)
		}
	}
	switch source := &persistentVolume.Spec.PersistentVolumeSource; {
	case source.AzureFile != nil:
		namespace := ""
		if source.AzureFile.SecretNamespace != nil {
			namespace = *source.AzureFile.SecretNamespace
		}
		add(namespace, source.AzureFile.SecretName)
	case source.CephFS != nil:
		ref(source.CephFS.SecretRef)
	case source.Cinder != nil:
		ref(source.Cinder.SecretRef)
	case source.FlexVolume != nil:
		ref(source.FlexVolume.SecretRef)
	case source.RBD != nil:
		ref(source.RBD.SecretRef)
	case source.ScaleIO != nil:
		ref(source.ScaleIO.SecretRef)
	case source.ISCSI != nil:
		ref(source.ISCSI.SecretRef)
	case source.StorageOS != nil && source.StorageOS.SecretRef != nil:
		add(source.StorageOS.SecretRef.Namespace, source.StorageOS.SecretRef.Name)
	case source.CSI != nil: // the kubelet does not need secrets that only the controller needs
		ref(source.CSI.NodePublishSecretRef)
		ref(source.CSI.NodeStageSecretRef)
		ref(source.CSI.NodeExpandSecretRef)
	}
	return found.list
}
