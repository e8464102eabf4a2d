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

const (
	// minTokenLifetime and maxTokenLifetime are in seconds.
	minTokenLifetime = 10 * 60
	maxTokenLifetime = 1 << 32
)

// projectedRules validates volumes with several sources, whose files must be distinct.
func (c *check) projectedRules(at validate.At, p *corev1.ProjectedVolumeSource) {
	at.FileMode("defaultMode", p.DefaultMode)
	paths := validate.Set[string]{}
	unique := func(path, shown string) {
		if path != "" && !paths.Add(path) {
			at.Invalid("", shown, "conflicting duplicate paths")
		}
	}
	validate.Each(at, "sources", p.Sources, func(place validate.At, s *corev1.VolumeProjection) {
		u := place.Choice("")
		items := func(at validate.At, name string, items []corev1.KeyToPath) {
			at.Present("name", name != "")
			validate.Each(at, "items", items, func(at validate.At, k *corev1.KeyToPath) {
				keyToPathRules(at, k)
				unique(k.Path, name)
			})
		}
		validate.Member(u, "secret", s.Secret, func(at validate.At, s *corev1.SecretProjection) { items(at, s.Name, s.Items) })
		validate.Member(u, "configMap", s.ConfigMap, func(at validate.At, s *corev1.ConfigMapProjection) { items(at, s.Name, s.Items) })
		validate.Member(u, "downwardAPI", s.DownwardAPI, func(at validate.At, d *corev1.DownwardAPIProjection) {
			for i := range d.Items {
				downwardFileRules(at, &d.Items[i])
				unique(d.Items[i].Path, d.Items[i].Path)
			}
		})
		validate.Member(u, "serviceAccountToken", s.ServiceAccountToken, func(place validate.At, t *corev1.ServiceAccountTokenProjection) {
			tokenLifetimeRules(place, t.ExpirationSeconds)
			// The error path is that of the volume.
			if t.Path == "" {
				at.Required("path", "")
			} else if !c.kept.tokenPath {
				filePath(at, "path", t.Path)
			}
		})
		// Errors have an older name of the field.
		validate.Member(u, "clusterTrustBundlePEM", s.ClusterTrustBundle, func(at validate.At, b *corev1.ClusterTrustBundleProjection) {
			trustBundleRules(at, b)
			unique(b.Path, b.Path)
		})
		place.Absent("", u.Count() > 1, "may not specify more than 1 volume type per source")
	})
}

func tokenLifetimeRules(at validate.At, seconds *int64) {
	if seconds == nil {
		return
	}
	if *seconds < minTokenLifetime {
		at.Invalid("expirationSeconds", *seconds, "may not specify a duration less than 10 minutes")
	}
	if *seconds > maxTokenLifetime {
		at.Invalid("expirationSeconds", *seconds, "may not specify a duration larger than 2^32 seconds")
	}
}

// trustBundleRules requires a bundle by name, or bundles by signer.
func trustBundleRules(at validate.At, b *corev1.ClusterTrustBundleProjection) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		at.Invalid("", *b, "only one of name and signerName may be used")
	case b.Name != nil:
		if *b.Name == "" {
			at.Required("name", "must be a valid object name")
		}
		signer := ""
		if i := strings.LastIndexByte(*b.Name, ':'); i >= 0 {
			signer = strings.ReplaceAll((*b.Name)[:i], ":", "/")
		}
		for _, msg := range validate.TrustBundleName(signer)(*b.Name) {
			at.Invalid("name", *b.Name, "not a valid clustertrustbundlename: "+msg)
		}
		if b.LabelSelector != nil {
			at.Invalid("labelSelector", *b.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			at.Required("signerName", "must be a valid signer name")
		}
		at.SignerName("signerName", *b.SignerName)
		at.Selector("labelSelector", b.LabelSelector, false)
	default:
		at.Required("", "either name or signerName must be specified")
	}
	at.Present("path", b.Path != "")
	filePath(at, "path", b.Path)
}

func hasForeignTokenPath(volumes []corev1.Volume) bool {
	return slices.ContainsFunc(volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && len(validate.Check(func(at validate.At) {
				filePath(at, "path", s.ServiceAccountToken.Path)
			})) > 0
		})
	})
}

// claimTemplateRules validates the template of a claim that is created for a pod. Its metadata has
// labels and annotations only.
func claimTemplateRules(at validate.At, t *corev1.PersistentVolumeClaimTemplate) {
	meta := at.Child("metadata")
	meta.Annotations("annotations", t.Annotations)
	meta.Labels("labels", t.Labels)
	meta.OnlyFields(t.ObjectMeta, "cannot be set", "Annotations", "Labels")
	ClaimRules(at.Child("spec"), &t.Spec, nil)
}

// AccessModeRules requires known modes. ReadWriteOncePod excludes other modes.
func AccessModeRules(at validate.At, modes []corev1.PersistentVolumeAccessMode) {
	others := false
	for _, mode := range modes {
		validate.OneOf(at, "accessModes", mode,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		others = others || mode == corev1.ReadOnlyMany || mode == corev1.ReadWriteMany || mode == corev1.ReadWriteOnce
	}
	at.Absent("accessModes", others && slices.Contains(modes, corev1.ReadWriteOncePod), "may not use ReadWriteOncePod with other access modes")
}

// ClaimRules validates the spec of a claim. old is nil at creation.
func ClaimRules(at validate.At, s, old *corev1.PersistentVolumeClaimSpec) {
	if len(s.AccessModes) == 0 {
		at.Required("accessModes", "at least 1 access mode is required")
	}
	at.Selector("selector", s.Selector, old != nil && validate.HasInvalidValue(old.Selector))
	AccessModeRules(at, s.AccessModes)
	size := at.Key("resources", string(corev1.ResourceStorage))
	if q, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		size.Required("", "")
	} else {
		size.PositiveQuantity("", q)
	}
	if s.StorageClassName != nil {
		at.OptionalText("storageClassName", *s.StorageClassName, validate.DNSSubdomain)
	}
	validate.OptionalOneOf(at, "volumeMode", s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	validate.Optional(at, "dataSource", s.DataSource, func(at validate.At, r *corev1.TypedLocalObjectReference) {
		dataSourceRules(at, r.APIGroup, r.Kind, r.Name)
	})
	validate.Optional(at, "dataSourceRef", s.DataSourceRef, func(at validate.At, r *corev1.TypedObjectReference) {
		dataSourceRules(at, r.APIGroup, r.Kind, r.Name)
		if r.Namespace != nil {
			at.OptionalText("namespace", *r.Namespace, validate.DNSLabel)
		}
	})
	source, ref := s.DataSource, s.DataSourceRef
	if source == nil || ref == nil {
		return
	}
	switch {
	case ref.Namespace != nil && *ref.Namespace != "":
		at.Invalid("", at.Child("dataSource").Path(), "may not be specified when dataSourceRef.namespace is specified")
	case !validate.Same(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		at.Invalid("", at.Child("dataSource").Path(), "must match dataSourceRef")
	}
}

func dataSourceRules(at validate.At, group *string, kind, name string) {
	at.Present("name", name != "")
	at.Present("kind", kind != "")
	if group == nil || *group == "" {
		if kind != "PersistentVolumeClaim" {
			at.Invalid("", kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
		}
		return
	}
	at.Text("apiGroup", *group, validate.DNSSubdomain)
}
