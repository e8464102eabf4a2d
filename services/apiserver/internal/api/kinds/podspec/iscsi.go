package podspec

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

const (
	// maxPortalName is the maximum length of an interface name, which consists of the name of a
	// volume and its portal.
	maxPortalName     = 64
	portalNameTooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
)

// iscsiNames are the formats of names (RFC 3720, 3.2.6.3; RFC 3980).
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// portalNameRule limits the interface name of a volume.
func portalNameRule(at validate.At, volume string, s *corev1.ISCSIVolumeSource) {
	if s != nil && s.InitiatorName != nil && len(volume)+1+len(s.TargetPortal) > maxPortalName {
		at.Invalid("name", volume, portalNameTooLong)
	}
}

// ISCSIRules validates the target of a named volume.
func ISCSIRules(at validate.At, volume string, s *corev1.ISCSIVolumeSource) {
	iscsiRules(at, s)
	if s.InitiatorName != nil && len(volume)+1+len(s.TargetPortal) > maxPortalName {
		at.Invalid("targetportal", s.TargetPortal, portalNameTooLong)
	}
}

func iscsiRules(at validate.At, s *corev1.ISCSIVolumeSource) {
	at.Present("targetPortal", s.TargetPortal != "")
	if s.IQN == "" {
		at.Required("iqn", "")
	} else {
		iscsiName(at, "iqn", s.IQN)
	}
	at.Octet("lun", s.Lun)
	at.Present("secretRef", s.SecretRef != nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth)
	if s.InitiatorName != nil {
		iscsiName(at, "initiatorname", *s.InitiatorName)
	}
}

func iscsiName(at validate.At, field, name string) {
	for begin, form := range iscsiNames {
		if strings.HasPrefix(name, begin) {
			if !form.MatchString(name) {
				at.Invalid(field, name, "must be valid format")
			}
			return
		}
	}
	at.Invalid(field, name, "must be valid format starting with iqn, eui, or naa")
}
