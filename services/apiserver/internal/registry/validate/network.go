package validate

import (
	"fmt"

	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// IP requires an IPv4 or IPv6 address. It accepts non-canonical forms that fields have always
// accepted, such as leading zeros; these cause warnings only (KEP-4858).
func (p Path) IP(name, value string) bool {
	errs := content.IsValidIPForLegacyField(p.childPath(name), value, false, nil)
	p.Add(errs...)
	return len(errs) == 0
}

// CIDR requires an address range.
func (p Path) CIDR(name, value string) {
	p.Add(content.IsValidCIDRForLegacyField(p.childPath(name), value, false, nil)...)
}

// CanonicalCIDR requires an address range in canonical form, without host bits.
func (p Path) CanonicalCIDR(name, value string) {
	p.Add(content.IsValidCIDR(p.childPath(name), value)...)
}

// CanonicalIP requires an address in canonical form.
func (p Path) CanonicalIP(name, value string) { p.Add(content.IsValidIP(p.childPath(name), value)...) }

// NonSpecialIP requires an address other than an unspecified, loopback or link-local one.
func (p Path) NonSpecialIP(name, value string) {
	ip := netutils.ParseIPSloppy(value)
	if ip == nil {
		p.Invalid(name, value, "must be a valid IP address")
		return
	}
	if ip.IsUnspecified() {
		p.Invalid(name, value, fmt.Sprintf("may not be unspecified (%v)", value))
	}
	if ip.IsLoopback() {
		p.Invalid(name, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	}
	if ip.IsLinkLocalUnicast() {
		p.Invalid(name, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	}
	if ip.IsLinkLocalMulticast() {
		p.Invalid(name, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}

// singlePerFamily requires at most two values of different IP families. detail is the error
// message. isDualStack reports whether the values have both families.
func (p Path) singlePerFamily(name string, value any, values []string, isDualStack func([]string) (bool, error), detail string) {
	if len(values) < 2 {
		return
	}
	if dualStack, err := isDualStack(values); err != nil || !dualStack || len(values) > 2 {
		p.Invalid(name, value, detail)
	}
}

// DualStackIPs requires at most one address of each family.
func (p Path) DualStackIPs(name string, value any, ips []string) {
	p.singlePerFamily(name, value, ips, netutils.IsDualStackIPStrings, "may specify no more than one IP for each IP family")
}

// DualStackCIDRs requires at most one range of each family.
func (p Path) DualStackCIDRs(name string, cidrs []string) {
	if _, err := netutils.IsDualStackCIDRStrings(cidrs); err != nil {
		p.Add(field.InternalError(p.childPath(name), fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
	}
	p.singlePerFamily(name, cidrs, cidrs, netutils.IsDualStackCIDRStrings, "may specify no more than one CIDR for each IP family")
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
