package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// mountRules requires each mount to have a volume of the pod and a distinct path. As in Kubernetes,
// some error paths have no index.
func (c *check) mountRules(fldPath validate.Path, ctr *corev1.Container) {
	list := fldPath.Child("volumeMounts")
	paths := validate.Set[string]{}
	devices := validate.KeySet(ctr.VolumeDevices, func(d *corev1.VolumeDevice) string { return d.Name })
	devicePaths := validate.KeySet(ctr.VolumeDevices, func(d *corev1.VolumeDevice) string { return d.DevicePath })
	validate.Each(fldPath, "volumeMounts", ctr.VolumeMounts, func(fldPath validate.Path, m *corev1.VolumeMount) {
		fldPath.Present("name", m.Name != "")
		source := c.volumes[m.Name]
		if source == nil {
			fldPath.NotFound("name", m.Name)
		}
		fldPath.Present("mountPath", m.MountPath != "")
		if !paths.Add(m.MountPath) {
			fldPath.Invalid("mountPath", m.MountPath, "must be unique")
		}
		if devices.Has(m.Name) {
			fldPath.Invalid("name", m.Name, "must not already exist in volumeDevices")
		}
		if devicePaths.Has(m.MountPath) {
			fldPath.Invalid("mountPath", m.MountPath, "must not already exist as a path in volumeDevices")
		}
		if m.SubPath != "" {
			descendingPath(list, "subPath", m.SubPath)
		}
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				fldPath.Invalid("subPathExpr", m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
			}
			descendingPath(list, "subPathExpr", m.SubPathExpr)
		}
		propagationRules(list, ctr, m)
	})
}

func propagationRules(fldPath validate.Path, ctr *corev1.Container, m *corev1.VolumeMount) {
	if p := m.MountPropagation; p != nil {
		validate.OneOf(fldPath, "mountPropagation", *p,
			corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		privileged := ctr.SecurityContext != nil && ctr.SecurityContext.Privileged != nil && *ctr.SecurityContext.Privileged
		fldPath.Absent("mountPropagation", *p == corev1.MountPropagationBidirectional && !privileged,
			"Bidirectional mount propagation is available only to privileged containers")
	}
	if r := m.RecursiveReadOnly; r != nil {
		validate.OneOf(fldPath, "recursiveReadOnly", *r,
			corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
		if *r == corev1.RecursiveReadOnlyEnabled || *r == corev1.RecursiveReadOnlyIfPossible {
			fldPath.Absent("recursiveReadOnly", !m.ReadOnly, "may only be specified when readOnly is true")
			fldPath.Absent("recursiveReadOnly", m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone,
				"may only be specified when mountPropagation is None or not specified")
		}
	}
}

// deviceRules requires each device to be a claim.
func deviceRules(fldPath validate.Path, ctr *corev1.Container, volumes map[string]*corev1.VolumeSource) {
	names, paths := validate.Set[string]{}, validate.Set[string]{}
	mounts := validate.KeySet(ctr.VolumeMounts, func(m *corev1.VolumeMount) string { return m.Name })
	mountPaths := validate.KeySet(ctr.VolumeMounts, func(m *corev1.VolumeMount) string { return m.MountPath })
	validate.Each(fldPath, "volumeDevices", ctr.VolumeDevices, func(fldPath validate.Path, d *corev1.VolumeDevice) {
		source := volumes[d.Name]
		fldPath.Present("name", d.Name != "")
		if names.Has(d.Name) {
			fldPath.Invalid("name", d.Name, "must be unique")
		}
		switch {
		case source == nil:
			fldPath.NotFound("name", d.Name)
		case source.PersistentVolumeClaim == nil && source.Ephemeral == nil:
			fldPath.Invalid("name", d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		fldPath.Present("devicePath", d.DevicePath != "")
		if paths.Has(d.DevicePath) {
			fldPath.Invalid("devicePath", d.DevicePath, "must be unique")
		}
		if hasBackstep(d.DevicePath) {
			fldPath.Invalid("devicePath", d.DevicePath, "can not contain backsteps ('..')")
		} else {
			paths.Add(d.DevicePath)
		}
		if mounts.Has(d.Name) {
			fldPath.Invalid("name", d.Name, "must not already exist in volumeMounts")
		}
		if mountPaths.Has(d.DevicePath) {
			fldPath.Invalid("devicePath", d.DevicePath, "must not already exist as a path in volumeMounts")
		}
		if d.Name != "" {
			names.Add(d.Name)
		}
	})
}

func hasBackstep(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// WithoutBackstep requires a path without "..".
func WithoutBackstep(fldPath validate.Path, name, path string) {
	if hasBackstep(path) {
		fldPath.Invalid(name, path, "must not contain '..'")
	}
}

// descendingPath requires a relative path without "..".
func descendingPath(fldPath validate.Path, name, path string) {
	if strings.HasPrefix(path, "/") {
		fldPath.Invalid(name, path, "must be a relative path")
	}
	WithoutBackstep(fldPath, name, path)
}

// filePath requires the path of a file in a volume. Names that begin with two dots are reserved for
// the kubelet.
func filePath(fldPath validate.Path, name, path string) {
	descendingPath(fldPath, name, path)
	if strings.HasPrefix(path, "..") && !strings.HasPrefix(path, "../") {
		fldPath.Invalid(name, path, "must not start with '..'")
	}
}

const (
	// minTokenLifetime and maxTokenLifetime are in seconds.
	minTokenLifetime = 10 * 60
	maxTokenLifetime = 1 << 32
)

// projectedRules validates volumes with several sources, whose files must be distinct.
func (c *check) projectedRules(fldPath validate.Path, p *corev1.ProjectedVolumeSource) {
	fldPath.FileMode("defaultMode", p.DefaultMode)
	paths := validate.Set[string]{}
	unique := func(path, shown string) {
		if path != "" && !paths.Add(path) {
			fldPath.Invalid("", shown, "conflicting duplicate paths")
		}
	}
	validate.Each(fldPath, "sources", p.Sources, func(path validate.Path, s *corev1.VolumeProjection) {
		u := path.Union("")
		items := func(fldPath validate.Path, name string, items []corev1.KeyToPath) {
			fldPath.Present("name", name != "")
			validate.Each(fldPath, "items", items, func(fldPath validate.Path, k *corev1.KeyToPath) {
				keyToPathRules(fldPath, k)
				unique(k.Path, name)
			})
		}
		validate.Member(u, "secret", s.Secret, func(fldPath validate.Path, s *corev1.SecretProjection) { items(fldPath, s.Name, s.Items) })
		validate.Member(u, "configMap", s.ConfigMap, func(fldPath validate.Path, s *corev1.ConfigMapProjection) { items(fldPath, s.Name, s.Items) })
		validate.Member(u, "downwardAPI", s.DownwardAPI, func(fldPath validate.Path, d *corev1.DownwardAPIProjection) {
			for i := range d.Items {
				downwardFileRules(fldPath, &d.Items[i])
				unique(d.Items[i].Path, d.Items[i].Path)
			}
		})
		validate.Member(u, "serviceAccountToken", s.ServiceAccountToken, func(path validate.Path, t *corev1.ServiceAccountTokenProjection) {
			tokenLifetimeRules(path, t.ExpirationSeconds)
			// The error path is that of the volume.
			if t.Path == "" {
				fldPath.Required("path", "")
			} else if !c.kept.tokenPath {
				filePath(fldPath, "path", t.Path)
			}
		})
		// Errors have an older name of the field.
		validate.Member(u, "clusterTrustBundlePEM", s.ClusterTrustBundle, func(fldPath validate.Path, b *corev1.ClusterTrustBundleProjection) {
			trustBundleRules(fldPath, b)
			unique(b.Path, b.Path)
		})
		path.Absent("", u.Count() > 1, "may not specify more than 1 volume type per source")
	})
}

func tokenLifetimeRules(fldPath validate.Path, seconds *int64) {
	if seconds == nil {
		return
	}
	if *seconds < minTokenLifetime {
		fldPath.Invalid("expirationSeconds", *seconds, "may not specify a duration less than 10 minutes")
	}
	if *seconds > maxTokenLifetime {
		fldPath.Invalid("expirationSeconds", *seconds, "may not specify a duration larger than 2^32 seconds")
	}
}

// trustBundleRules requires a bundle by name, or bundles by signer.
func trustBundleRules(fldPath validate.Path, b *corev1.ClusterTrustBundleProjection) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		fldPath.Invalid("", *b, "only one of name and signerName may be used")
	case b.Name != nil:
		if *b.Name == "" {
			fldPath.Required("name", "must be a valid object name")
		}
		signer := ""
		if i := strings.LastIndexByte(*b.Name, ':'); i >= 0 {
			signer = strings.ReplaceAll((*b.Name)[:i], ":", "/")
		}
		for _, msg := range validate.TrustBundleName(signer)(*b.Name) {
			fldPath.Invalid("name", *b.Name, "not a valid clustertrustbundlename: "+msg)
		}
		if b.LabelSelector != nil {
			fldPath.Invalid("labelSelector", *b.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			fldPath.Required("signerName", "must be a valid signer name")
		}
		fldPath.SignerName("signerName", *b.SignerName)
		fldPath.Selector("labelSelector", b.LabelSelector, false)
	default:
		fldPath.Required("", "either name or signerName must be specified")
	}
	fldPath.Present("path", b.Path != "")
	filePath(fldPath, "path", b.Path)
}

func hasForeignTokenPath(volumes []corev1.Volume) bool {
	return slices.ContainsFunc(volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && len(validate.Check(func(fldPath validate.Path) {
				filePath(fldPath, "path", s.ServiceAccountToken.Path)
			})) > 0
		})
	})
}

// claimTemplateRules validates the template of a claim that is created for a pod. Its metadata has
// labels and annotations only.
func claimTemplateRules(fldPath validate.Path, t *corev1.PersistentVolumeClaimTemplate) {
	meta := fldPath.Child("metadata")
	meta.Annotations("annotations", t.Annotations)
	meta.Labels("labels", t.Labels)
	meta.OnlyFields(t.ObjectMeta, "cannot be set", "Annotations", "Labels")
	ClaimRules(fldPath.Child("spec"), &t.Spec, nil)
}

// AccessModeRules requires known modes. ReadWriteOncePod excludes other modes.
func AccessModeRules(fldPath validate.Path, modes []corev1.PersistentVolumeAccessMode) {
	others := false
	for _, mode := range modes {
		validate.OneOf(fldPath, "accessModes", mode,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		others = others || mode == corev1.ReadOnlyMany || mode == corev1.ReadWriteMany || mode == corev1.ReadWriteOnce
	}
	fldPath.Absent("accessModes", others && slices.Contains(modes, corev1.ReadWriteOncePod), "may not use ReadWriteOncePod with other access modes")
}

// ClaimRules validates the spec of a claim. old is nil at creation.
func ClaimRules(fldPath validate.Path, s, old *corev1.PersistentVolumeClaimSpec) {
	if len(s.AccessModes) == 0 {
		fldPath.Required("accessModes", "at least 1 access mode is required")
	}
	fldPath.Selector("selector", s.Selector, old != nil && validate.HasInvalidLabelValue(old.Selector))
	AccessModeRules(fldPath, s.AccessModes)
	size := fldPath.Key("resources", string(corev1.ResourceStorage))
	if q, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		size.Required("", "")
	} else {
		size.PositiveQuantity("", q)
	}
	if s.StorageClassName != nil {
		fldPath.OptionalText("storageClassName", *s.StorageClassName, validate.DNSSubdomain)
	}
	validate.OptionalOneOf(fldPath, "volumeMode", s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	validate.Optional(fldPath, "dataSource", s.DataSource, func(fldPath validate.Path, r *corev1.TypedLocalObjectReference) {
		dataSourceRules(fldPath, r.APIGroup, r.Kind, r.Name)
	})
	validate.Optional(fldPath, "dataSourceRef", s.DataSourceRef, func(fldPath validate.Path, r *corev1.TypedObjectReference) {
		dataSourceRules(fldPath, r.APIGroup, r.Kind, r.Name)
		if r.Namespace != nil {
			fldPath.OptionalText("namespace", *r.Namespace, validate.DNSLabel)
		}
	})
	source, ref := s.DataSource, s.DataSourceRef
	if source == nil || ref == nil {
		return
	}
	switch {
	case ref.Namespace != nil && *ref.Namespace != "":
		fldPath.Invalid("", fldPath.Child("dataSource").FieldPath(), "may not be specified when dataSourceRef.namespace is specified")
	case !validate.SemanticEqual(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		fldPath.Invalid("", fldPath.Child("dataSource").FieldPath(), "must match dataSourceRef")
	}
}

func dataSourceRules(fldPath validate.Path, group *string, kind, name string) {
	fldPath.Present("name", name != "")
	fldPath.Present("kind", kind != "")
	if group == nil || *group == "" {
		if kind != "PersistentVolumeClaim" {
			fldPath.Invalid("", kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
		}
		return
	}
	fldPath.Text("apiGroup", *group, validate.DNSSubdomain)
}
