package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/node"
)

// TestVolumeSecrets checks that a node can read the secrets that are needed to mount the volumes of
// its pods, by default in the namespace of the claim.
func TestVolumeSecrets(t *testing.T) {
	ref, elsewhere := &corev1.SecretReference{Name: "s"}, &corev1.SecretReference{Namespace: "b", Name: "s"}
	namespace, none := "b", ""
	for name, test := range map[string]struct {
		source corev1.PersistentVolumeSource
		in     string // the namespace of the secret, if it has one
	}{
		"azure": {source: corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s"}},
			in: "a"},
		"azure, elsewhere": {
			source: corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{
				SecretName:      "s",
				SecretNamespace: &namespace,
			}},
			in: "b",
		},
		"azure, nowhere": {
			source: corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{
				SecretName:      "s",
				SecretNamespace: &none,
			}},
			in: "a",
		},
		"ceph": {source: corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: ref}}, in: "a"},
		"ceph, elsewhere": {
			source: corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: elsewhere}},
			in:     "b",
		},
		"ceph, none": {source: corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{}}},
		"cinder": {
			source: corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{SecretRef: ref}},
			in:     "a",
		},
		"flex": {
			source: corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{SecretRef: ref}},
			in:     "a",
		},
		"rbd": {source: corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: elsewhere}}, in: "b"},
		"scaleio": {
			source: corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{SecretRef: ref}},
			in:     "a",
		},
		"iscsi": {source: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{SecretRef: ref}}, in: "a"},
		"storageos": {
			source: corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Name: "s"}}},
			in:     "a",
		},
		"storageos, elsewhere": {
			source: corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{
				Namespace: "b",
				Name:      "s",
			}}},
			in: "b",
		},
		"storageos, none":       {source: corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{}}},
		"what needs no secrets": {source: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
	} {
		graph := node.NewGraph()
		graph.Set(pod("p", "n1", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}}
		}))
		graph.Set(volume("pv", "claim", test.source))
		for _, in := range []string{"a", "b", ""} {
			if got := graph.HasReference("n1", node.Secret, in, "s"); got != (test.in != "" && test.in == in) {
				t.Errorf("%s, in %q: got %t, want %t", name, in, got, !got)
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
		"nothing":    {spec: corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{})}, want: ""},
		"an account": {spec: corev1.PodSpec{ServiceAccountName: "x"}, want: "a service account"},
		"a secret":   {spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "x"}}}, want: "secrets"},
		"a projected": {
			spec: corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: *localRef("x")}})},
			want: "secrets",
		},
		"a config map": {
			spec: corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *localRef("x")}})},
			want: "configmaps",
		},
		"a bundle": {spec: corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{ClusterTrustBundle: bundle})},
			want: "clustertrustbundles"},
		"a claim": {
			spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}}}},
			want: "persistentvolumeclaims",
		},
		"a device": {spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "x"}}}, want: "resourceclaims"},
		"no names": {spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{}}}, want: ""},
		"device before": {spec: corev1.PodSpec{ServiceAccountName: "x", ResourceClaims: []corev1.PodResourceClaim{{Name: "x"}}},
			want: "resourceclaims"},
	} {
		p := &corev1.Pod{Spec: test.spec}
		if got := node.ForbiddenMirrorPodReference(p); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got := node.UsesSecrets(p); got != (test.want == "secrets") {
			t.Errorf("%s: UsesSecrets() = %t, want %t", name, got, !got)
		}
	}
}
