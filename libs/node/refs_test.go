package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/node"
)

// TestNodeReadsSecretsOfItsVolumes checks that a node can read the secrets that are needed to mount
// the volumes of its pods, by default in the namespace of the claim.
func TestNodeReadsSecretsOfItsVolumes(t *testing.T) {
	ref, elsewhere := &corev1.SecretReference{Name: "s"}, &corev1.SecretReference{Namespace: "b", Name: "s"}
	namespaceB, emptyNamespace := "b", ""
	for name, test := range map[string]struct {
		source    corev1.PersistentVolumeSource
		namespace string // the namespace of the secret, if it has one
	}{
		"azure": {source: corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s"}},
			namespace: "a"},
		"azure, secret in another namespace": {
			source: corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{
				SecretName:      "s",
				SecretNamespace: &namespaceB,
			}},
			namespace: "b",
		},
		"azure, empty namespace": {
			source: corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{
				SecretName:      "s",
				SecretNamespace: &emptyNamespace,
			}},
			namespace: "a",
		},
		"ceph": {source: corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: ref}}, namespace: "a"},
		"ceph, secret in another namespace": {
			source:    corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: elsewhere}},
			namespace: "b",
		},
		"ceph without a secret": {source: corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{}}},
		"cinder": {
			source:    corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{SecretRef: ref}},
			namespace: "a",
		},
		"flex": {
			source:    corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{SecretRef: ref}},
			namespace: "a",
		},
		"rbd": {source: corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: elsewhere}}, namespace: "b"},
		"scaleio": {
			source:    corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{SecretRef: ref}},
			namespace: "a",
		},
		"iscsi": {source: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{SecretRef: ref}}, namespace: "a"},
		"storageos": {
			source:    corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Name: "s"}}},
			namespace: "a",
		},
		"storageos, secret in another namespace": {
			source: corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{
				Namespace: "b",
				Name:      "s",
			}}},
			namespace: "b",
		},
		"storageos without a secret": {source: corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{}}},
		"host path":                  {source: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
	} {
		graph := node.NewGraph()
		graph.Set(pod("p", "n1", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}}
		}))
		graph.Set(volume("pv", "claim", test.source))
		for _, readNamespace := range []string{"a", "b", ""} {
			if got := graph.HasReference("n1", node.Secret, readNamespace, "s"); got != (test.namespace != "" && test.namespace == readNamespace) {
				t.Errorf("%s, in %q: got %t, want %t", name, readNamespace, got, !got)
			}
		}
	}
}

// TestForbiddenMirrorPodReferences checks which references a mirror pod must not have.
func TestForbiddenMirrorPodReferences(t *testing.T) {
	projected := func(volumeProjection corev1.VolumeProjection) []corev1.Volume {
		return []corev1.Volume{
			{Name: "v"},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{},
				volumeProjection,
			}}}},
		}
	}
	bundle := &corev1.ClusterTrustBundleProjection{Path: "p"}
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"no references":   {spec: corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{})}, want: ""},
		"service account": {spec: corev1.PodSpec{ServiceAccountName: "x"}, want: "a service account"},
		"pull secret":     {spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "x"}}}, want: "secrets"},
		"projected secret": {
			spec: corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: *localRef("x")}})},
			want: "secrets",
		},
		"projected config map": {
			spec: corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *localRef("x")}})},
			want: "configmaps",
		},
		"trust bundle": {spec: corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{ClusterTrustBundle: bundle})},
			want: "clustertrustbundles"},
		"volume claim": {
			spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}}}},
			want: "persistentvolumeclaims",
		},
		"resource claim":             {spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "x"}}}, want: "resourceclaims"},
		"pull secret without a name": {spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{}}}, want: ""},
		"resource claim and service account": {spec: corev1.PodSpec{ServiceAccountName: "x", ResourceClaims: []corev1.PodResourceClaim{{Name: "x"}}},
			want: "resourceclaims"},
	} {
		pod := &corev1.Pod{Spec: test.spec}
		if got := node.ForbiddenMirrorPodReference(pod); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got := node.UsesSecrets(pod); got != (test.want == "secrets") {
			t.Errorf("%s: UsesSecrets() = %t, want %t", name, got, !got)
		}
	}
}
