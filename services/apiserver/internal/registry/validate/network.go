package validate

import (
	"fmt"

	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// CheckIP requires an IPv4 or IPv6 address. It accepts non-canonical forms that fields have always
// accepted, such as leading zeros; these cause warnings only (KEP-4858).
func (f Field) CheckIP(name, value string) bool {
	errs := content.IsValidIPForLegacyField(f.childPath(name), value, false, nil)
	f.Add(errs...)
	return len(errs) == 0
}

// CheckCIDR requires an address range.
func (f Field) CheckCIDR(name, value string) {
	f.Add(content.IsValidCIDRForLegacyField(f.childPath(name), value, false, nil)...)
}

// CheckCanonicalCIDR requires an address range in canonical form, without host bits.
func (f Field) CheckCanonicalCIDR(name, value string) {
	f.Add(content.IsValidCIDR(f.childPath(name), value)...)
}

// CheckCanonicalIP requires an address in canonical form.
func (f Field) CheckCanonicalIP(name, value string) {
	f.Add(content.IsValidIP(f.childPath(name), value)...)
}

// CheckNonSpecialIP requires an address other than an unspecified, loopback or link-local one.
func (f Field) CheckNonSpecialIP(name, value string) {
	ip := netutils.ParseIPSloppy(value)
	if ip == nil {
		f.Invalid(name, value, "must be a valid IP address")
		return
	}
	if ip.IsUnspecified() {
		f.Invalid(name, value, fmt.Sprintf("may not be unspecified (%v)", value))
	}
	if ip.IsLoopback() {
		f.Invalid(name, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	}
	if ip.IsLinkLocalUnicast() {
		f.Invalid(name, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	}
	if ip.IsLinkLocalMulticast() {
		f.Invalid(name, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}

// checkSinglePerFamily requires at most two values of different IP families. detail is the error
// message. isDualStack reports whether the values have both families.
func (f Field) checkSinglePerFamily(
	name string,
	value any,
	values []string,
	isDualStack func([]string) (bool, error),
	detail string,
) {
	if len(values) < 2 {
		return
	}
	if dualStack, err := isDualStack(values); err != nil || !dualStack || len(values) > 2 {
		f.Invalid(name, value, detail)
	}
}

// CheckDualStackIPs requires at most one address of each family.
func (f Field) CheckDualStackIPs(name string, value any, ips []string) {
	if len(ips) > 1 {
		if _, err := netutils.IsDualStackIPStrings(ips); err != nil {
			f.Add(field.InternalError(f.childPath(name), fmt.Errorf("failed to check for dual stack with error:%w", err)))
		}
	}
	f.checkSinglePerFamily(name, value, ips, netutils.IsDualStackIPStrings, "may specify no more than one IP for each IP family")
}

// CheckDualStackCIDRs requires at most one range of each family.
func (f Field) CheckDualStackCIDRs(name string, cidrs []string) {
	if _, err := netutils.IsDualStackCIDRStrings(cidrs); err != nil {
		f.Add(field.InternalError(
			f.childPath(name),
			fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err),
		))
	}
	f.checkSinglePerFamily(
		name,
		cidrs,
		cidrs,
		netutils.IsDualStackCIDRStrings,
		"may specify no more than one CIDR for each IP family",
	)
}

// IPWarnings returns warnings for a non-canonical address. Rules reject an invalid one.
func IPWarnings(path *field.Path, value string) []string {
	if len(content.IsValidIPForLegacyField(path, value, false, nil)) > 0 {
		return nil
	}
	return content.GetWarningsForIP(path, value)
}

// CIDRWarnings returns warnings for a non-canonical range.
func CIDRWarnings(path *field.Path, value string) []string {
	if len(content.IsValidCIDRForLegacyField(path, value, false, nil)) > 0 {
		return nil
	}
	return content.GetWarningsForCIDR(path, value)
}
