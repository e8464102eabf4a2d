package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// mountRules requires each mount to have a volume of the pod and a distinct path. As in Kubernetes,
// some error paths have no index.
func (c *check) mountRules(at validate.At, ctr *corev1.Container) {
	list := at.Child("volumeMounts")
	paths := validate.Set[string]{}
	devices := validate.SetOf(ctr.VolumeDevices, func(d *corev1.VolumeDevice) string { return d.Name })
	devicePaths := validate.SetOf(ctr.VolumeDevices, func(d *corev1.VolumeDevice) string { return d.DevicePath })
	validate.Each(at, "volumeMounts", ctr.VolumeMounts, func(at validate.At, m *corev1.VolumeMount) {
		at.Present("name", m.Name != "")
		source := c.volumes[m.Name]
		if source == nil {
			at.NotFound("name", m.Name)
		}
		at.Present("mountPath", m.MountPath != "")
		if !paths.Add(m.MountPath) {
			at.Invalid("mountPath", m.MountPath, "must be unique")
		}
		if devices.Has(m.Name) {
			at.Invalid("name", m.Name, "must not already exist in volumeDevices")
		}
		if devicePaths.Has(m.MountPath) {
			at.Invalid("mountPath", m.MountPath, "must not already exist as a path in volumeDevices")
		}
		if m.SubPath != "" {
			descendingPath(list, "subPath", m.SubPath)
		}
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				at.Invalid("subPathExpr", m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
			}
			descendingPath(list, "subPathExpr", m.SubPathExpr)
		}
		propagationRules(list, ctr, m)
	})
}

func propagationRules(at validate.At, ctr *corev1.Container, m *corev1.VolumeMount) {
	if p := m.MountPropagation; p != nil {
		validate.OneOf(at, "mountPropagation", *p,
			corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		privileged := ctr.SecurityContext != nil && ctr.SecurityContext.Privileged != nil && *ctr.SecurityContext.Privileged
		at.Absent("mountPropagation", *p == corev1.MountPropagationBidirectional && !privileged,
			"Bidirectional mount propagation is available only to privileged containers")
	}
	if r := m.RecursiveReadOnly; r != nil {
		validate.OneOf(at, "recursiveReadOnly", *r,
			corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
		if *r == corev1.RecursiveReadOnlyEnabled || *r == corev1.RecursiveReadOnlyIfPossible {
			at.Absent("recursiveReadOnly", !m.ReadOnly, "may only be specified when readOnly is true")
			at.Absent("recursiveReadOnly", m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone,
				"may only be specified when mountPropagation is None or not specified")
		}
	}
}

// deviceRules requires each device to be a claim.
func deviceRules(at validate.At, ctr *corev1.Container, volumes map[string]*corev1.VolumeSource) {
	names, paths := validate.Set[string]{}, validate.Set[string]{}
	mounts := validate.SetOf(ctr.VolumeMounts, func(m *corev1.VolumeMount) string { return m.Name })
	mountPaths := validate.SetOf(ctr.VolumeMounts, func(m *corev1.VolumeMount) string { return m.MountPath })
	validate.Each(at, "volumeDevices", ctr.VolumeDevices, func(at validate.At, d *corev1.VolumeDevice) {
		source := volumes[d.Name]
		at.Present("name", d.Name != "")
		if names.Has(d.Name) {
			at.Invalid("name", d.Name, "must be unique")
		}
		switch {
		case source == nil:
			at.NotFound("name", d.Name)
		case source.PersistentVolumeClaim == nil && source.Ephemeral == nil:
			at.Invalid("name", d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		at.Present("devicePath", d.DevicePath != "")
		if paths.Has(d.DevicePath) {
			at.Invalid("devicePath", d.DevicePath, "must be unique")
		}
		if hasBackstep(d.DevicePath) {
			at.Invalid("devicePath", d.DevicePath, "can not contain backsteps ('..')")
		} else {
			paths.Add(d.DevicePath)
		}
		if mounts.Has(d.Name) {
			at.Invalid("name", d.Name, "must not already exist in volumeMounts")
		}
		if mountPaths.Has(d.DevicePath) {
			at.Invalid("devicePath", d.DevicePath, "must not already exist as a path in volumeMounts")
		}
		if d.Name != "" {
			names.Add(d.Name)
		}
	})
}

func hasBackstep(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// WithoutBackstep requires a path without "..".
func WithoutBackstep(at validate.At, name, path string) {
	if hasBackstep(path) {
		at.Invalid(name, path, "must not contain '..'")
	}
}

// descendingPath requires a relative path without "..".
func descendingPath(at validate.At, name, path string) {
	if strings.HasPrefix(path, "/") {
		at.Invalid(name, path, "must be a relative path")
	}
	WithoutBackstep(at, name, path)
}

// filePath requires the path of a file in a volume. Names that begin with two dots are reserved for
// the kubelet.
func filePath(at validate.At, name, path string) {
	descendingPath(at, name, path)
	if strings.HasPrefix(path, "..") && !strings.HasPrefix(path, "../") {
		at.Invalid(name, path, "must not start with '..'")
	}
}
