package poddefaults_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
)

// TestDefaultsOfVolumeWithSeveralSources checks that each source has its defaults. Such a volume is
// invalid, but webhooks see it before it is rejected.
func TestDefaultsOfVolumeWithSeveralSources(t *testing.T) {
	volume := corev1.Volume{VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{},
		ISCSI:  &corev1.ISCSIVolumeSource{},
		RBD:    &corev1.RBDVolumeSource{},
	}}
	spec := corev1.PodSpec{Volumes: []corev1.Volume{volume}}
	poddefaults.Spec(&spec)
	volume = spec.Volumes[0]
	if volume.Secret.DefaultMode == nil || *volume.Secret.DefaultMode != 0o644 {
		t.Errorf("default mode of the secret = %v, want 0644", volume.Secret.DefaultMode)
	}
	if got := volume.ISCSI.ISCSIInterface; got != "default" {
		t.Errorf("ISCSI interface = %q, want default", got)
	}
	if got := volume.RBD.RBDPool; got != "rbd" {
		t.Errorf("RBD pool = %q, want rbd", got)
	}
}
