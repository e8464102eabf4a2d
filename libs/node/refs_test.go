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
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		in     string // the namespace of the secret, if it has one
	}{
		"azure":                 {corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s"}}, "a"},
		"azure, elsewhere":      {corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s", SecretNamespace: &namespace}}, "b"},
		"azure, nowhere":        {corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s", SecretNamespace: &none}}, "a"},
		"ceph":                  {corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: ref}}, "a"},
		"ceph, elsewhere":       {corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: elsewhere}}, "b"},
		"ceph, none":            {corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{}}, ""},
		"cinder":                {corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{SecretRef: ref}}, "a"},
		"flex":                  {corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{SecretRef: ref}}, "a"},
		"rbd":                   {corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: elsewhere}}, "b"},
		"scaleio":               {corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{SecretRef: ref}}, "a"},
		"iscsi":                 {corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{SecretRef: ref}}, "a"},
		"storageos":             {corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Name: "s"}}}, "a"},
		"storageos, elsewhere":  {corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Namespace: "b", Name: "s"}}}, "b"},
		"storageos, none":       {corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{}}, ""},
		"what needs no secrets": {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, ""},
	} {
		g := node.NewGraph()
		g.Set(pod("p", "n1", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}}
		}))
		g.Set(volume("pv", "claim", c.source))
		for _, in := range []string{"a", "b", ""} {
			if got := g.Belongs("n1", node.Secret, in, "s"); got != (c.in != "" && c.in == in) {
				t.Errorf("%s, in %q: %v", name, in, got)
			}
		}
	}
}

// TestForbiddenMirrorPodReferences checks which references a mirror pod must not have.
func TestForbiddenMirrorPodReferences(t *testing.T) {
	projected := func(s corev1.VolumeProjection) []corev1.Volume {
		return []corev1.Volume{{Name: "v"}, {VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}, s}}}}}
	}
	bundle := &corev1.ClusterTrustBundleProjection{Path: "p"}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"nothing":       {corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{})}, ""},
		"an account":    {corev1.PodSpec{ServiceAccountName: "x"}, "a service account"},
		"a secret":      {corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "x"}}}, "secrets"},
		"a projected":   {corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: *local("x")}})}, "secrets"},
		"a config map":  {corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *local("x")}})}, "configmaps"},
		"a bundle":      {corev1.PodSpec{Volumes: projected(corev1.VolumeProjection{ClusterTrustBundle: bundle})}, "clustertrustbundles"},
		"a claim":       {corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}}}}, "persistentvolumeclaims"},
		"a device":      {corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "x"}}}, "resourceclaims"},
		"no names":      {corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{}}}, ""},
		"device before": {corev1.PodSpec{ServiceAccountName: "x", ResourceClaims: []corev1.PodResourceClaim{{Name: "x"}}}, "resourceclaims"},
	} {
		p := &corev1.Pod{Spec: c.spec}
		if got := node.ForbiddenMirrorPodReference(p); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := node.UsesSecrets(p); got != (c.want == "secrets") {
			t.Errorf("%s: UsesSecrets() = %v", name, got)
		}
	}
}
