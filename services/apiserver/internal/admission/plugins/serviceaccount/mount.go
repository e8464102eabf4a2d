package serviceaccount

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/meta"
)

const (
	// volumePrefix is the prefix of the name of the volume with the token.
	volumePrefix = "kube-api-access-"
	mountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is the lifetime of the token. It is not exactly one hour, so that the server
	// recognizes requests for this volume: older clients do not renew the token, and the server may
	// extend its lifetime.
	tokenSeconds int64 = 60*60 + 7
	fileMode     int32 = 0o644
)

// mountToken mounts a volume with the account's token in every container that has no volume at the
// path yet. It adds the volume to the pod if a container needs it and the pod has none.
func mountToken(pod *corev1.Pod) {
	name, hasVolume := "", false
	for i := range pod.Spec.Volumes {
		if strings.HasPrefix(pod.Spec.Volumes[i].Name, volumePrefix) {
			name, hasVolume = pod.Spec.Volumes[i].Name, true
			break
		}
	}
	if !hasVolume {
		name = meta.GenerateName(volumePrefix)
	}
	mounted := mountIn(pod.Spec.InitContainers, name)
	mounted = mountIn(pod.Spec.Containers, name) || mounted
	if mounted && !hasVolume {
		pod.Spec.Volumes = append(pod.Spec.Volumes,
			corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenVolume()}})
	}
}

// mountIn mounts a volume at mountPath in each container without a mount there. It reports whether
// it changed a container.
func mountIn(containers []corev1.Container, volume string) (mounted bool) {
	for i := range containers {
		container := &containers[i]
		if slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mountPath }) {
			continue
		}
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume, ReadOnly: true, MountPath: mountPath})
		mounted = true
	}
	return mounted
}

// tokenVolume returns a volume with the data that clients in the pod need: a token, the cluster's
// certificate authority, and the namespace.
func tokenVolume() *corev1.ProjectedVolumeSource {
	seconds, mode := tokenSeconds, fileMode
	return &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		},
	}
}
