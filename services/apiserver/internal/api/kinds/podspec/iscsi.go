package podspec

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// maxPortalName is the maximum length of an interface name, which consists of the name of a volume
// and its portal.
const maxPortalName = 64

// iscsiNames holds the patterns of names by their prefix (RFC 3720, 3.2.6.3; RFC 3980).
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// ValidateISCSIPortalName limits the interface name of a volume. The error names the given field
// and value.
func ValidateISCSIPortalName(fld validate.Field, field, value, volume, portal string, initiator *string) {
	if initiator != nil && len(volume)+1+len(portal) > maxPortalName {
		fld.Invalid(field, value,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.")
	}
}

// validateISCSI validates an iSCSI target, which needs a secret for CHAP.
func validateISCSI(fld validate.Field, s *corev1.ISCSIVolumeSource) {
	const unknown = "must be valid format starting with iqn, eui, or naa"
	fld.RequireSet("targetPortal", s.TargetPortal != "")
	ValidateISCSIQualifiedName(fld, s.IQN, unknown)
	fld.CheckOctet("lun", s.Lun)
	fld.RequireSet("secretRef", s.SecretRef != nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth)
	ValidateISCSIInitiatorName(fld, s.InitiatorName, unknown)
}

// ValidateISCSIQualifiedName validates the name of a target. A name of an unknown type has the
// error unknown.
func ValidateISCSIQualifiedName(fld validate.Field, iqn, unknown string) {
	if iqn == "" {
		fld.Required("iqn", "")
		return
	}
	validateISCSIName(fld, "iqn", iqn, unknown)
}

// ValidateISCSIInitiatorName validates the name of an initiator, if there is one.
func ValidateISCSIInitiatorName(fld validate.Field, name *string, unknown string) {
	if name != nil {
		validateISCSIName(fld, "initiatorname", *name, unknown)
	}
}

// validateISCSIName requires a name in the format that its prefix states.
func validateISCSIName(fld validate.Field, field, name, unknown string) {
	for prefix, pattern := range iscsiNames {
		if strings.HasPrefix(name, prefix) {
			if !pattern.MatchString(name) {
				fld.Invalid(field, name, "must be valid format")
			}
			return
		}
	}
	fld.Invalid(field, name, unknown)
}
