package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// SyncAppArmor copies the AppArmor profiles of a new pod between annotations and fields, so that
// servers and nodes of other versions find them (KEP-24, "Version skew strategy").
func SyncAppArmor(p *corev1.Pod) {
	eachAppArmor(p, func(ctr *corev1.Container, whole *corev1.AppArmorProfile) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + ctr.Name
		var own *corev1.AppArmorProfile
		if ctr.SecurityContext != nil {
			own = ctr.SecurityContext.AppArmorProfile
		}
		if value, ok := p.Annotations[key]; ok {
			if profile := annotatedProfile(value); own == nil && profile != nil && !validate.Same(profile, whole) {
				declare.FillPtr(&ctr.SecurityContext, corev1.SecurityContext{})
				ctr.SecurityContext.AppArmorProfile = profile
			}
			return
		}
		if own == nil {
			own = whole
		}
		if value := profileAnnotation(own); value != "" {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[key] = value
		}
	})
}

// AppArmorWarnings returns the warnings of annotations without a corresponding field. It is for new
// pods before SyncAppArmor.
func AppArmorWarnings(p *corev1.Pod) []string {
	w := &warner{spec: &p.Spec, meta: &p.ObjectMeta}
	eachAppArmor(p, func(ctr *corev1.Container, whole *corev1.AppArmorProfile) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + ctr.Name
		value, ok := p.Annotations[key]
		if !ok || ctr.SecurityContext != nil && ctr.SecurityContext.AppArmorProfile != nil {
			return
		}
		if profile := annotatedProfile(value); profile == nil || !validate.Same(profile, whole) {
			w.appArmor(key)
		}
	})
	return w.texts
}

// eachAppArmor visits the containers of a pod that may have an AppArmor profile, with the
// profile of the pod.
func eachAppArmor(p *corev1.Pod, visit func(ctr *corev1.Container, whole *corev1.AppArmorProfile)) {
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	var whole *corev1.AppArmorProfile
	if p.Spec.SecurityContext != nil {
		whole = p.Spec.SecurityContext.AppArmorProfile
	}
	eachContainer(&p.Spec, func(_ string, _ int, ctr *corev1.Container) { visit(ctr, whole) })
}

// profileAnnotation returns the annotation of a profile, which is empty for nil and for a
// profile that is not valid.
func profileAnnotation(p *corev1.AppArmorProfile) string {
	switch {
	case p == nil:
	case p.Type == corev1.AppArmorProfileTypeUnconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case p.Type == corev1.AppArmorProfileTypeRuntimeDefault:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case p.Type == corev1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		return corev1.DeprecatedAppArmorBetaProfileNamePrefix + *p.LocalhostProfile
	}
	return ""
}

// annotatedProfile returns the profile that an annotation names, or nil if a field cannot have that
// profile.
func annotatedProfile(value string) *corev1.AppArmorProfile {
	if name, local := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix); local && name != "" {
		p := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
		if len(validate.Check(func(at validate.At) { appArmorRules(at, p) })) > 0 {
			return nil
		}
		return p
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
