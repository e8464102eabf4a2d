package podspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

const (
	mirrorAnnotation       = "kubernetes.io/config.mirror"
	deletionCostAnnotation = "controller.kubernetes.io/pod-deletion-cost"
	tolerationsAnnotation  = "scheduler.alpha.kubernetes.io/tolerations"
)

// validateAnnotations validates the annotations that Kubernetes defines.
func (c *check) validateAnnotations(fld validate.Field, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	if value, mirror := annotations[mirrorAnnotation]; mirror && c.spec.NodeName == "" {
		fld.Key("", mirrorAnnotation).Invalid("", value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if text := annotations[tolerationsAnnotation]; text != "" {
		var tolerations []corev1.Toleration
		if err := json.Unmarshal([]byte(text), &tolerations); err != nil {
			fld.Invalid("", tolerationsAnnotation, strings.ReplaceAll(err.Error(), "v1.Toleration", "core.Toleration"))
		}
		validate.Each(fld, tolerationsAnnotation, tolerations, TolerationRules)
	}
	if !c.prior.deletionCost && !hasValidDeletionCost(annotations) {
		fld.Key("", deletionCostAnnotation).Invalid("", annotations[deletionCostAnnotation], "must be a 32bit integer")
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[key]
		switch {
		case key == corev1.SeccompPodAnnotationKey, strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix):
			validateSeccompName(fld, key, value)
		case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			c.validateAppArmorName(
				fld.Key("", key),
				strings.TrimPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix),
				value,
			)
		}
	}
}

// hasValidDeletionCost reports whether the cost is a number in canonical form.
func hasValidDeletionCost(annotations map[string]string) bool {
	value, ok := annotations[deletionCostAnnotation]
	if !ok {
		return true
	}
	if value == "" || value[0] == '+' || len(value) > 1 && value[0] == '0' {
		return false
	}
	_, err := strconv.ParseInt(value, 10, 32)
	return err == nil
}

// validateSeccompName requires a known seccomp profile.
func validateSeccompName(fld validate.Field, key, profile string) {
	switch {
	case profile == corev1.SeccompProfileRuntimeDefault, profile == corev1.DeprecatedSeccompProfileDockerDefault,
		profile == corev1.SeccompProfileNameUnconfined:
	case strings.HasPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix):
		validateDescendingPath(fld, key, strings.TrimPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix))
	default:
		fld.Invalid(key, profile, "must be a valid seccomp profile")
	}
}

// validateAppArmorName requires a known AppArmor profile of a container of the pod.
func (c *check) validateAppArmorName(fld validate.Field, container, profile string) {
	found := false
	eachContainer(c.spec, func(_ string, _ int, ctr *corev1.Container) { found = found || ctr.Name == container })
	if !found {
		fld.Invalid("", container, "container not found")
	}
	switch {
	case profile == "",
		profile == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault,
		profile == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
	case !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		fld.Invalid("", profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
	}
}

// validateProfiles requires annotations that agree with the fields that replaced them.
func (c *check) validateProfiles(fld validate.Field, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	podSpec := c.spec
	if sc := podSpec.SecurityContext; sc != nil && sc.SeccompProfile != nil {
		if value, ok := annotations[corev1.SeccompPodAnnotationKey]; ok {
			validateSeccompAnnotation(fld.Child("securityContext", "seccompProfile"), value, sc.SeccompProfile)
		}
	}
	eachContainer(podSpec, func(list string, i int, ctr *corev1.Container) {
		value, ok := annotations[corev1.SeccompContainerAnnotationKeyPrefix+ctr.Name]
		if ok && ctr.SecurityContext != nil && ctr.SecurityContext.SeccompProfile != nil {
			validateSeccompAnnotation(
				fld.Index(list, i).Child("securityContext", "seccompProfile"),
				value,
				ctr.SecurityContext.SeccompProfile,
			)
		}
	})
	if podSpec.OS != nil && podSpec.OS.Name == corev1.Windows {
		return
	}
	eachContainer(podSpec, func(list string, i int, ctr *corev1.Container) {
		value, ok := annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+ctr.Name]
		if profile := appArmorOf(podSpec, ctr); ok && profile != nil {
			path := fld.Index(list, i).Child("securityContext", "appArmorProfile")
			name, local := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
			validateProfileAnnotation(path, "apparmor", string(profile.Type), profile.LocalhostProfile, map[string]bool{
				string(corev1.AppArmorProfileTypeUnconfined):     value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
				string(corev1.AppArmorProfileTypeRuntimeDefault): value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault,
				string(corev1.AppArmorProfileTypeLocalhost):      local,
			}, name)
		}
	})
}

// appArmorOf returns a container's own profile, or else the pod's.
func appArmorOf(podSpec *corev1.PodSpec, ctr *corev1.Container) *corev1.AppArmorProfile {
	if ctr.SecurityContext != nil && ctr.SecurityContext.AppArmorProfile != nil {
		return ctr.SecurityContext.AppArmorProfile
	}
	if podSpec.SecurityContext != nil {
		return podSpec.SecurityContext.AppArmorProfile
	}
	return nil
}

// validateSeccompAnnotation requires an annotation that agrees with the field.
func validateSeccompAnnotation(fld validate.Field, value string, p *corev1.SeccompProfile) {
	name, local := strings.CutPrefix(value, corev1.SeccompLocalhostProfileNamePrefix)
	validateProfileAnnotation(fld, "seccomp", string(p.Type), p.LocalhostProfile, map[string]bool{
		string(corev1.SeccompProfileTypeUnconfined): value == corev1.SeccompProfileNameUnconfined,
		string(corev1.SeccompProfileTypeRuntimeDefault): value == corev1.SeccompProfileRuntimeDefault ||
			value == corev1.DeprecatedSeccompProfileDockerDefault,
		string(corev1.SeccompProfileTypeLocalhost): local,
	}, name)
}

// validateProfileAnnotation requires that the field with the type typ and the local profile agrees
// with an annotation. hasType reports, for each type, whether the annotation has it. name is the name
// of a local profile in the annotation. description is the kind of profile in messages.
func validateProfileAnnotation(fld validate.Field, description, typ string, profile *string, hasType map[string]bool, name string) {
	switch same, known := hasType[typ]; {
	case !known:
	case !same:
		fld.Forbidden("type", description+" type in annotation and field must match")
	case typ == string(corev1.SeccompProfileTypeLocalhost) && (profile == nil || *profile != name):
		fld.Forbidden("localhostProfile", description+" profile in annotation and field must match")
	}
}

// SyncAppArmor copies the AppArmor profiles of a new pod between annotations and fields, so that
// servers and nodes of other versions find them (KEP-24, "Version skew strategy").
func SyncAppArmor(pod *corev1.Pod) {
	visitAppArmorProfiles(pod, func(ctr *corev1.Container, ofPod *corev1.AppArmorProfile) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + ctr.Name
		var ofContainer *corev1.AppArmorProfile
		if ctr.SecurityContext != nil {
			ofContainer = ctr.SecurityContext.AppArmorProfile
		}
		if value, ok := pod.Annotations[key]; ok {
			if profile := annotatedProfile(value); ofContainer == nil && profile != nil && !validate.SemanticEqual(profile, ofPod) {
				declare.SetDefaultPtr(&ctr.SecurityContext, corev1.SecurityContext{})
				ctr.SecurityContext.AppArmorProfile = profile
			}
			return
		}
		if ofContainer == nil {
			ofContainer = ofPod
		}
		if value := profileAnnotation(ofContainer); value != "" {
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			pod.Annotations[key] = value
		}
	})
}

// AppArmorWarnings returns the warnings of annotations without a corresponding field. It is for new
// pods before SyncAppArmor.
func AppArmorWarnings(pod *corev1.Pod) []string {
	w := &warner{spec: &pod.Spec, meta: &pod.ObjectMeta}
	visitAppArmorProfiles(pod, func(ctr *corev1.Container, ofPod *corev1.AppArmorProfile) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + ctr.Name
		value, ok := pod.Annotations[key]
		if !ok || ctr.SecurityContext != nil && ctr.SecurityContext.AppArmorProfile != nil {
			return
		}
		if profile := annotatedProfile(value); profile == nil || !validate.SemanticEqual(profile, ofPod) {
			w.addAppArmorWarning(key)
		}
	})
	return w.texts
}

// visitAppArmorProfiles visits the containers of a pod that may have an AppArmor profile, with the
// profile of the pod.
func visitAppArmorProfiles(pod *corev1.Pod, visit func(ctr *corev1.Container, ofPod *corev1.AppArmorProfile)) {
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return
	}
	var ofPod *corev1.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		ofPod = pod.Spec.SecurityContext.AppArmorProfile
	}
	eachContainer(&pod.Spec, func(_ string, _ int, ctr *corev1.Container) { visit(ctr, ofPod) })
}

// profileAnnotation returns the annotation of a profile, which is empty for nil and for a
// profile that is not valid.
func profileAnnotation(appArmorProfile *corev1.AppArmorProfile) string {
	switch {
	case appArmorProfile == nil:
	case appArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case appArmorProfile.Type == corev1.AppArmorProfileTypeRuntimeDefault:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case appArmorProfile.Type == corev1.AppArmorProfileTypeLocalhost && appArmorProfile.LocalhostProfile != nil:
		return corev1.DeprecatedAppArmorBetaProfileNamePrefix + *appArmorProfile.LocalhostProfile
	}
	return ""
}

// annotatedProfile returns the profile that an annotation names, or nil if a field cannot have that
// profile.
func annotatedProfile(value string) *corev1.AppArmorProfile {
	if name, local := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix); local && name != "" {
		appArmorProfile := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
		if len(validate.Check(func(fld validate.Field) { validateAppArmor(fld, appArmorProfile) })) > 0 {
			return nil
		}
		return appArmorProfile
	}
	switch value {
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	default:
		return nil
	}
}
