package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Warnings returns warnings for deprecated types of volumes.
func Warnings(path *field.Path, source *corev1.PersistentVolumeSource) (texts []string) {
	for _, d := range []struct {
		isUsed    bool
		name, msg string
	}{
		{isUsed: source.PhotonPersistentDisk != nil, name: "photonPersistentDisk", msg: "deprecated in v1.11, non-functional in v1.16+"},
		{isUsed: source.ScaleIO != nil, name: "scaleIO", msg: "deprecated in v1.16, non-functional in v1.22+"},
		{isUsed: source.StorageOS != nil, name: "storageOS", msg: "deprecated in v1.22, non-functional in v1.25+"},
		{isUsed: source.Glusterfs != nil, name: "glusterfs", msg: "deprecated in v1.25, non-functional in v1.26+"},
		{isUsed: source.RBD != nil, name: "rbd", msg: "deprecated in v1.28, non-functional in v1.31+"},
		{isUsed: source.CephFS != nil, name: "cephfs", msg: "deprecated in v1.28, non-functional in v1.31+"},
	} {
		if d.isUsed {
			texts = append(texts, fmt.Sprintf("%s: %s", path.Child(d.name), d.msg))
		}
	}
	return texts
}
