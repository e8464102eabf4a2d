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
func ForbiddenMirrorPodReference(p *corev1.Pod) string {
	if len(p.Spec.ResourceClaims) > 0 { // created from a template, or already existing
		return "resourceclaims"
	}
	for i := range p.Spec.Volumes {
		v := p.Spec.Volumes[i].Projected
		if v != nil && slices.ContainsFunc(v.Sources,
			func(s corev1.VolumeProjection) bool { return s.ClusterTrustBundle != nil }) {
			return "clustertrustbundles"
		}
	}
	for _, o := range referencedObjects(p) {
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
func referencedObjects(p *corev1.Pod) []object {
	found := &referenceSet{}
	add := func(kind Kind, name string) { found.add(kind, p.Namespace, name) }
	add(ServiceAccount, p.Spec.ServiceAccountName)
	for _, s := range p.Spec.ImagePullSecrets {
		add(Secret, s.Name)
	}
	for i := range p.Spec.InitContainers {
		addEnvRefs(add, &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		addEnvRefs(add, &p.Spec.Containers[i])
	}
	for i := range p.Spec.EphemeralContainers {
		c := corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		addEnvRefs(add, &c)
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		for _, name := range secretsOfPodVolume(v) {
			add(Secret, name)
		}
		if v.ConfigMap != nil {
			add(ConfigMap, v.ConfigMap.Name)
		}
		if v.PersistentVolumeClaim != nil {
			add(PersistentVolumeClaim, v.PersistentVolumeClaim.ClaimName)
		} else if v.Ephemeral != nil {
			add(PersistentVolumeClaim, p.Name+"-"+v.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				add(Secret, s.Secret.Name)
			}
			if s.ConfigMap != nil {
				add(ConfigMap, s.ConfigMap.Name)
			}
		}
	}
	for i := range p.Spec.ResourceClaims {
		add(ResourceClaim, resourceClaimName(p, &p.Spec.ResourceClaims[i]))
	}
	return found.list
}

// resourceClaimName returns the name of the claim for an entry of a pod: either the claim that the
// entry names, or the claim that was created for it.
func resourceClaimName(p *corev1.Pod, c *corev1.PodResourceClaim) string {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name == c.Name && s.ResourceClaimName != nil {
			return *s.ResourceClaimName
		}
	}
	return ""
}

// addEnvRefs adds the Secrets and ConfigMaps of a container's environment.
func addEnvRefs(add func(Kind, string), c *corev1.Container) {
	for _, e := range c.EnvFrom {
		if e.SecretRef != nil {
			add(Secret, e.SecretRef.Name)
		}
		if e.ConfigMapRef != nil {
			add(ConfigMap, e.ConfigMapRef.Name)
		}
	}
	for _, e := range c.Env {
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
func secretsOfPodVolume(v *corev1.Volume) []string {
	local := (*corev1.LocalObjectReference)(nil)
	switch {
	case v.Secret != nil:
		return []string{v.Secret.SecretName}
	case v.AzureFile != nil:
		return []string{v.AzureFile.SecretName}
	default:
		switch {
		case v.CephFS != nil:
			local = v.CephFS.SecretRef
		case v.Cinder != nil:
			local = v.Cinder.SecretRef
		case v.FlexVolume != nil:
			local = v.FlexVolume.SecretRef
		case v.RBD != nil:
			local = v.RBD.SecretRef
		case v.ScaleIO != nil:
			local = v.ScaleIO.SecretRef
		case v.ISCSI != nil:
			local = v.ISCSI.SecretRef
		case v.StorageOS != nil:
			local = v.StorageOS.SecretRef
		case v.CSI != nil:
			local = v.CSI.NodePublishSecretRef
		}
		if local != nil {
			return []string{local.Name}
		}
	}
	return nil
}

// secretsOfVolume returns the secrets that a kubelet needs to mount a volume. A secret without a
// namespace is in the namespace of the claim.
func secretsOfVolume(v *corev1.PersistentVolume) []object {
	found := &referenceSet{}
	add := func(namespace, name string) {
		if namespace == "" {
			namespace = v.Spec.ClaimRef.Namespace
		}
		found.add(Secret, namespace, name)
	}
	ref := func(s *corev1.SecretReference) {
		if s != nil {
			add(s.Namespace, s.Name)
		}
	}
	switch s := &v.Spec.PersistentVolumeSource; {
	case s.AzureFile != nil:
		namespace := ""
		if s.AzureFile.SecretNamespace != nil {
			namespace = *s.AzureFile.SecretNamespace
		}
		add(namespace, s.AzureFile.SecretName)
	case s.CephFS != nil:
		ref(s.CephFS.SecretRef)
	case s.Cinder != nil:
		ref(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		ref(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		ref(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		ref(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		ref(s.ISCSI.SecretRef)
	case s.StorageOS != nil && s.StorageOS.SecretRef != nil:
		add(s.StorageOS.SecretRef.Namespace, s.StorageOS.SecretRef.Name)
	case s.CSI != nil: // the kubelet does not need secrets that only the controller needs
		ref(s.CSI.NodePublishSecretRef)
		ref(s.CSI.NodeStageSecretRef)
		ref(s.CSI.NodeExpandSecretRef)
	}
	return found.list
}
