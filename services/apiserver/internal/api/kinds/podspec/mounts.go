package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// validateMounts requires each mount to have a volume of the pod and a distinct path. As in
// Kubernetes, some error paths have no index.
func (c *check) validateMounts(fld validate.Field, ctr *corev1.Container) {
	list := fld.Child("volumeMounts")
	paths := validate.Set[string]{}
	devices := validate.KeySet(ctr.VolumeDevices, func(d *corev1.VolumeDevice) string { return d.Name })
	devicePaths := validate.KeySet(ctr.VolumeDevices, func(d *corev1.VolumeDevice) string { return d.DevicePath })
	validate.Each(fld, "volumeMounts", ctr.VolumeMounts, func(fld validate.Field, mount *corev1.VolumeMount) {
		fld.RequireSet("name", mount.Name != "")
		source := c.volumes[mount.Name]
		if source == nil {
			fld.NotFound("name", mount.Name)
		}
		fld.RequireSet("mountPath", mount.MountPath != "")
		if !paths.Add(mount.MountPath) {
			fld.Invalid("mountPath", mount.MountPath, "must be unique")
		}
		if devices.Has(mount.Name) {
			fld.Invalid("name", mount.Name, "must not already exist in volumeDevices")
		}
		if devicePaths.Has(mount.MountPath) {
			fld.Invalid("mountPath", mount.MountPath, "must not already exist as a path in volumeDevices")
		}
		if mount.SubPath != "" {
			validateDescendingPath(list, "subPath", mount.SubPath)
		}
		if mount.SubPathExpr != "" {
			if mount.SubPath != "" {
				fld.Invalid("subPathExpr", mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
			}
			validateDescendingPath(list, "subPathExpr", mount.SubPathExpr)
		}
		validatePropagation(list, ctr, mount)
	})
}

// validatePropagation validates mountPropagation and recursiveReadOnly.
func validatePropagation(fld validate.Field, ctr *corev1.Container, volumeMount *corev1.VolumeMount) {
	if propagation := volumeMount.MountPropagation; propagation != nil {
		validate.OneOf(fld, "mountPropagation", *propagation,
			corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		privileged := ctr.SecurityContext != nil && ctr.SecurityContext.Privileged != nil && *ctr.SecurityContext.Privileged
		fld.ForbidSet("mountPropagation", *propagation == corev1.MountPropagationBidirectional && !privileged,
			"Bidirectional mount propagation is available only to privileged containers")
	}
	if recursive := volumeMount.RecursiveReadOnly; recursive != nil {
		validate.OneOf(fld, "recursiveReadOnly", *recursive,
			corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
		if *recursive == corev1.RecursiveReadOnlyEnabled || *recursive == corev1.RecursiveReadOnlyIfPossible {
			fld.ForbidSet("recursiveReadOnly", !volumeMount.ReadOnly, "may only be specified when readOnly is true")
			fld.ForbidSet("recursiveReadOnly", volumeMount.MountPropagation != nil && *volumeMount.MountPropagation != corev1.MountPropagationNone,
				"may only be specified when mountPropagation is None or not specified")
		}
	}
}

// validateVolumeDevices requires each device to be a claim.
func validateVolumeDevices(fld validate.Field, ctr *corev1.Container, volumes map[string]*corev1.VolumeSource) {
	names, paths := validate.Set[string]{}, validate.Set[string]{}
	mounts := validate.KeySet(ctr.VolumeMounts, func(m *corev1.VolumeMount) string { return m.Name })
	mountPaths := validate.KeySet(ctr.VolumeMounts, func(m *corev1.VolumeMount) string { return m.MountPath })
	validate.Each(fld, "volumeDevices", ctr.VolumeDevices, func(fld validate.Field, device *corev1.VolumeDevice) {
		source := volumes[device.Name]
		fld.RequireSet("name", device.Name != "")
		if names.Has(device.Name) {
			fld.Invalid("name", device.Name, "must be unique")
		}
		switch {
		case source == nil:
			fld.NotFound("name", device.Name)
		case source.PersistentVolumeClaim == nil && source.Ephemeral == nil:
			fld.Invalid("name", device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		fld.RequireSet("devicePath", device.DevicePath != "")
		if paths.Has(device.DevicePath) {
			fld.Invalid("devicePath", device.DevicePath, "must be unique")
		}
		if hasBackstep(device.DevicePath) {
			fld.Invalid("devicePath", device.DevicePath, "can not contain backsteps ('..')")
		} else {
			paths.Add(device.DevicePath)
		}
		if mounts.Has(device.Name) {
			fld.Invalid("name", device.Name, "must not already exist in volumeMounts")
		}
		if mountPaths.Has(device.DevicePath) {
			fld.Invalid("devicePath", device.DevicePath, "must not already exist as a path in volumeMounts")
		}
		if device.Name != "" {
			names.Add(device.Name)
		}
	})
}

// hasBackstep reports whether a path has an element "..".
func hasBackstep(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// ForbidBackstep requires a path without "..".
func ForbidBackstep(fld validate.Field, name, path string) {
	if hasBackstep(path) {
		fld.Invalid(name, path, "must not contain '..'")
	}
}

// validateDescendingPath requires a relative path without "..".
func validateDescendingPath(fld validate.Field, name, path string) {
	if strings.HasPrefix(path, "/") {
		fld.Invalid(name, path, "must be a relative path")
	}
	ForbidBackstep(fld, name, path)
}

// validateFilePath requires the path of a file in a volume. Names that start with two dots are
// reserved for the kubelet.
func validateFilePath(fld validate.Field, name, path string) {
	validateDescendingPath(fld, name, path)
	if strings.HasPrefix(path, "..") && !strings.HasPrefix(path, "../") {
		fld.Invalid(name, path, "must not start with '..'")
	}
}

// validateFiles validates the files of a config map or secret and their default mode.
func validateFiles(fld validate.Field, mode *int32, items []corev1.KeyToPath) {
	fld.CheckFileMode("defaultMode", mode)
	validate.Each(fld, "items", items, validateKeyToPath)
}

// validateKeyToPath validates a key that is mapped to a file.
func validateKeyToPath(fld validate.Field, item *corev1.KeyToPath) {
	fld.RequireSet("key", item.Key != "")
	fld.RequireSet("path", item.Path != "")
	validateFilePath(fld, "path", item.Path)
	fld.CheckFileMode("mode", item.Mode)
}

// validateDownwardFile requires a field of the pod or a resource of a container as content.
func validateDownwardFile(fld validate.Field, file *corev1.DownwardAPIVolumeFile) {
	fld.RequireSet("path", file.Path != "")
	validateFilePath(fld, "path", file.Path)
	switch {
	case file.FieldRef != nil:
		validateFieldRef(fld.Child("fieldRef"), file.FieldRef, []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"})
		if file.ResourceFieldRef != nil {
			fld.Invalid("", "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case file.ResourceFieldRef != nil:
		validateResourceField(fld.Child("resourceFieldRef"), file.ResourceFieldRef, inFile)
	default:
		fld.Required("", "one of fieldRef and resourceFieldRef is required")
	}
	fld.CheckFileMode("mode", file.Mode)
}

// Limits of a token's lifetime in seconds.
const (
	minTokenLifetime = 10 * 60
	maxTokenLifetime = 1 << 32
)

// validateProjectedVolume validates volumes with several sources, whose files must be distinct.
func (c *check) validateProjectedVolume(fld validate.Field, projected *corev1.ProjectedVolumeSource) {
	fld.CheckFileMode("defaultMode", projected.DefaultMode)
	paths := validate.Set[string]{}
	requireUnique := func(path, reported string) {
		if path != "" && !paths.Add(path) {
			fld.Invalid("", reported, "conflicting duplicate paths")
		}
	}
	validate.Each(fld, "sources", projected.Sources, func(source validate.Field, projection *corev1.VolumeProjection) {
		union := source.Union("")
		validateItems := func(fld validate.Field, name string, items []corev1.KeyToPath) {
			fld.RequireSet("name", name != "")
			validate.Each(fld, "items", items, func(fld validate.Field, k *corev1.KeyToPath) {
				validateKeyToPath(fld, k)
				requireUnique(k.Path, name) // as in Kubernetes, the error has the name of the object
			})
		}
		validate.Member(union, "secret", projection.Secret, func(fld validate.Field, s *corev1.SecretProjection) { validateItems(fld, s.Name, s.Items) })
		validate.Member(
			union,
			"configMap",
			projection.ConfigMap,
			func(fld validate.Field, s *corev1.ConfigMapProjection) { validateItems(fld, s.Name, s.Items) },
		)
		validate.Member(union, "downwardAPI", projection.DownwardAPI, func(fld validate.Field, d *corev1.DownwardAPIProjection) {
			for i := range d.Items {
				validateDownwardFile(fld, &d.Items[i])
				requireUnique(d.Items[i].Path, d.Items[i].Path)
			}
		})
		validate.Member(
			union,
			"serviceAccountToken",
			projection.ServiceAccountToken,
			func(path validate.Field, t *corev1.ServiceAccountTokenProjection) {
				validateTokenLifetime(path, t.ExpirationSeconds)
				// As in Kubernetes, the error path is that of the volume.
				if t.Path == "" {
					fld.Required("path", "")
				} else if !c.prior.tokenPath {
					validateFilePath(fld, "path", t.Path)
				}
			},
		)
		// As in Kubernetes, errors have an older name of the field.
		validate.Member(
			union,
			"clusterTrustBundlePEM",
			projection.ClusterTrustBundle,
			func(fld validate.Field, b *corev1.ClusterTrustBundleProjection) {
				validateTrustBundle(fld, b)
				requireUnique(b.Path, b.Path)
			},
		)
		source.ForbidSet("", union.Count() > 1, "may not specify more than 1 volume type per source")
	})
}

// validateTokenLifetime validates the requested lifetime of a token; nil means the default.
func validateTokenLifetime(fld validate.Field, seconds *int64) {
	if seconds == nil {
		return
	}
	if *seconds < minTokenLifetime {
		fld.Invalid("expirationSeconds", *seconds, "may not specify a duration less than 10 minutes")
	}
	if *seconds > maxTokenLifetime {
		fld.Invalid("expirationSeconds", *seconds, "may not specify a duration larger than 2^32 seconds")
	}
}

// validateTrustBundle requires a bundle by name, or bundles by signer.
func validateTrustBundle(fld validate.Field, projection *corev1.ClusterTrustBundleProjection) {
	switch {
	case projection.Name != nil && projection.SignerName != nil:
		fld.Invalid("", *projection, "only one of name and signerName may be used")
	case projection.Name != nil:
		if *projection.Name == "" {
			fld.Required("name", "must be a valid object name")
		}
		signer := ""
		if i := strings.LastIndexByte(*projection.Name, ':'); i >= 0 {
			signer = strings.ReplaceAll((*projection.Name)[:i], ":", "/")
		}
		for _, msg := range validate.TrustBundleName(signer)(*projection.Name) {
			fld.Invalid("name", *projection.Name, "not a valid clustertrustbundlename: "+msg)
		}
		if projection.LabelSelector != nil {
			fld.Invalid("labelSelector", *projection.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case projection.SignerName != nil:
		if *projection.SignerName == "" {
			fld.Required("signerName", "must be a valid signer name")
		}
		fld.CheckSignerName("signerName", *projection.SignerName)
		fld.CheckSelector("labelSelector", projection.LabelSelector, false)
	default:
		fld.Required("", "either name or signerName must be specified")
	}
	fld.RequireSet("path", projection.Path != "")
	validateFilePath(fld, "path", projection.Path)
}

// hasInvalidTokenPath reports whether the path of a projected service account token is invalid.
func hasInvalidTokenPath(volumes []corev1.Volume) bool {
	return slices.ContainsFunc(volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && len(validate.Check(func(fld validate.Field) {
				validateFilePath(fld, "path", s.ServiceAccountToken.Path)
			})) > 0
		})
	})
}

// validateClaimTemplate validates the template of a claim that is created for a pod. Its metadata
// has labels and annotations only.
func validateClaimTemplate(fld validate.Field, template *corev1.PersistentVolumeClaimTemplate) {
	meta := fld.Child("metadata")
	meta.CheckAnnotations("annotations", template.Annotations)
	meta.CheckLabels("labels", template.Labels)
	meta.AllowFields(template.ObjectMeta, "cannot be set", "Annotations", "Labels")
	ValidateClaimSpec(fld.Child("spec"), &template.Spec, nil)
}

// ValidateAccessModes requires known modes. ReadWriteOncePod excludes other modes.
func ValidateAccessModes(fld validate.Field, modes []corev1.PersistentVolumeAccessMode) {
	hasOtherModes := false
	for _, mode := range modes {
		validate.OneOf(fld, "accessModes", mode,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		hasOtherModes = hasOtherModes || mode == corev1.ReadOnlyMany || mode == corev1.ReadWriteMany || mode == corev1.ReadWriteOnce
	}
	fld.ForbidSet("accessModes", hasOtherModes && slices.Contains(modes, corev1.ReadWriteOncePod),
		"may not use ReadWriteOncePod with other access modes")
}

// ValidateClaimSpec validates the spec of a claim. old is nil at creation.
func ValidateClaimSpec(fld validate.Field, spec, old *corev1.PersistentVolumeClaimSpec) {
	if len(spec.AccessModes) == 0 {
		fld.Required("accessModes", "at least 1 access mode is required")
	}
	fld.CheckSelector("selector", spec.Selector, old != nil && validate.HasInvalidLabelValue(old.Selector))
	ValidateAccessModes(fld, spec.AccessModes)
	size := fld.Key("resources", string(corev1.ResourceStorage))
	if q, ok := spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		size.Required("", "")
	} else {
		size.CheckPositiveQuantity("", q)
	}
	if spec.StorageClassName != nil {
		fld.CheckOptionalText("storageClassName", *spec.StorageClassName, validate.DNSSubdomain)
	}
	validate.OptionalOneOf(fld, "volumeMode", spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	validate.Optional(fld, "dataSource", spec.DataSource, func(fld validate.Field, r *corev1.TypedLocalObjectReference) {
		validateDataSource(fld, r.APIGroup, r.Kind, r.Name)
	})
	validate.Optional(fld, "dataSourceRef", spec.DataSourceRef, func(fld validate.Field, r *corev1.TypedObjectReference) {
		validateDataSource(fld, r.APIGroup, r.Kind, r.Name)
		if r.Namespace != nil {
			fld.CheckOptionalText("namespace", *r.Namespace, validate.DNSLabel)
		}
	})
	source, ref := spec.DataSource, spec.DataSourceRef
	if source == nil || ref == nil {
		return
	}
	switch {
	case ref.Namespace != nil && *ref.Namespace != "":
		fld.Invalid("", fld.Child("dataSource").FieldPath(), "may not be specified when dataSourceRef.namespace is specified")
	case !validate.SemanticEqual(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		fld.Invalid("", fld.Child("dataSource").FieldPath(), "must match dataSourceRef")
	}
}

// validateDataSource validates a reference. In the core group, it must be to a claim.
func validateDataSource(fld validate.Field, group *string, kind, name string) {
	fld.RequireSet("name", name != "")
	fld.RequireSet("kind", kind != "")
	if group == nil || *group == "" {
		if kind != "PersistentVolumeClaim" {
			fld.Invalid("", kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
		}
		return
	}
	fld.CheckText("apiGroup", *group, validate.DNSSubdomain)
}
