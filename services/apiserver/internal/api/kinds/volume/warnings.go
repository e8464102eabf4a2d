package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Warnings returns warnings for deprecated types of volumes.
func Warnings(path *field.Path, s *corev1.PersistentVolumeSource) (texts []string) {
	for _, d := range []struct {
		is        bool
		name, msg string
	}{
		{s.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
		{s.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
		{s.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
		{s.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
		{s.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
		{s.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
	} {
		if d.is {
			texts = append(texts, fmt.Sprintf("%s: %s", path.Child(d.name), d.msg))
		}
	}
	return texts
}
