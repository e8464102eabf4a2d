package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// MoveAppArmor makes the annotations of a new pod that name profiles into
// fields (KEP-24, "Version skew strategy").
func MoveAppArmor(p *corev1.Pod) {
	if len(p.Annotations) == 0 || p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	var whole *corev1.AppArmorProfile
	if p.Spec.SecurityContext != nil {
		whole = p.Spec.SecurityContext.AppArmorProfile
	}
	eachContainer(&p.Spec, func(_ string, _ int, ctr *corev1.Container) {
		value, ok := p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+ctr.Name]
		if !ok || ctr.SecurityContext != nil && ctr.SecurityContext.AppArmorProfile != nil {
			return
		}
		if profile := annotatedProfile(value); profile != nil && !validate.Same(profile, whole) {
			if ctr.SecurityContext == nil {
				ctr.SecurityContext = &corev1.SecurityContext{}
			}
			ctr.SecurityContext.AppArmorProfile = profile
		}
	})
}

// annotatedProfile is the profile that an annotation names, nil when it names
// none that a field may have.
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
