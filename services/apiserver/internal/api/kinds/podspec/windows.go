package podspec

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// Limits of the options of Windows containers.
const (
	maxCredentialSpec = 64 << 10
	maxDomainName     = 255
	maxUserName       = 104
)

var (
	controlCharacters = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSName       = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDomain     = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	badUserCharacters = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
	dotsAndSpaces     = regexp.MustCompile(`^[\. ]+$`)
)

func windowsRules(at validate.At, o *corev1.WindowsSecurityContextOptions) {
	if name := o.GMSACredentialSpecName; name != nil {
		at.Text("gmsaCredentialSpecName", *name, validate.DNSSubdomain)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		switch {
		case *spec == "":
			at.Invalid("gmsaCredentialSpec", *spec, "gmsaCredentialSpec cannot be an empty string")
		case len(*spec) > maxCredentialSpec:
			at.Invalid("gmsaCredentialSpec", *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpec>>10))
		}
	}
	if o.RunAsUserName != nil {
		windowsUserRules(at, *o.RunAsUserName)
	}
}

// windowsUserRules requires a user, or a domain, a backslash and a user.
func windowsUserRules(at validate.At, name string) {
	bad := func(is bool, detail string) {
		if is {
			at.Invalid("runAsUserName", name, detail)
		}
	}
	switch {
	case name == "":
		bad(true, "runAsUserName cannot be an empty string")
		return
	case controlCharacters.MatchString(name):
		bad(true, "runAsUserName cannot contain control characters")
		return
	case strings.Count(name, `\`) > 1:
		bad(true, "runAsUserName cannot contain more than one backslash")
		return
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	bad(len(domain) > maxDomainName, fmt.Sprintf("runAsUserName's Domain length must be under %d characters", maxDomainName+1))
	bad(hasDomain && !netBIOSName.MatchString(domain) && !windowsDomain.MatchString(domain),
		"runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	bad(user == "", "runAsUserName's User cannot be empty")
	bad(len(user) > maxUserName, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", maxUserName))
	bad(dotsAndSpaces.MatchString(user), "runAsUserName's User cannot contain only periods or spaces")
	bad(badUserCharacters.MatchString(user), `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
}

// hostProcessRules requires all containers of a pod to be host processes if any of them is.
func (c *check) hostProcessRules(at validate.At) {
	var whole *bool
	if s := c.whole.SecurityContext; s != nil && s.WindowsOptions != nil {
		whole = s.WindowsOptions.HostProcess
	}
	all, processes := 0, 0
	eachContainer(c.whole, func(list string, i int, ctr *corev1.Container) {
		all++
		own := whole
		if s := ctr.SecurityContext; s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil {
			own = s.WindowsOptions.HostProcess
			if whole != nil && *whole != *own {
				at.Index(list, i).Child("securityContext", "windowsOptions").Invalid("hostProcess", *own,
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *whole))
			}
		}
		if own != nil && *own {
			processes++
		}
	})
	if processes == 0 {
		return
	}
	if processes != all {
		at.Invalid("", "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !c.whole.HostNetwork {
		at.Invalid("hostNetwork", false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
	at.Absent("", !c.privileged, "hostProcess containers are disallowed by cluster policy")
}

// osRules rejects fields that the pod's operating system does not support.
func (c *check) osRules(spec, at validate.At, os *corev1.PodOS) {
	switch os.Name {
	case "":
		at.Required("name", "cannot be empty")
	case corev1.Linux:
		c.linuxRules(spec)
	case corev1.Windows:
		c.notOnWindows(spec)
	default:
		validate.OneOf(at, "", os.Name, corev1.Linux, corev1.Windows)
	}
}

func (c *check) linuxRules(at validate.At) {
	const detail = "windows options cannot be set for a linux pod"
	if s := c.whole.SecurityContext; s != nil {
		at.Child("securityContext").Absent("windowsOptions", s.WindowsOptions != nil, detail)
	}
	eachContainer(c.whole, func(list string, i int, ctr *corev1.Container) {
		if s := ctr.SecurityContext; s != nil && s.WindowsOptions != nil {
			at.Index(list, i).Child("securityContext").Forbidden("windowsOptions", detail)
		}
	})
}

func (c *check) notOnWindows(at validate.At) {
	const detail = "cannot be set for a windows pod"
	if s := c.whole.SecurityContext; s != nil {
		sc := at.Child("securityContext")
		sc.Absent("appArmorProfile", s.AppArmorProfile != nil, detail)
		sc.Absent("seLinuxOptions", s.SELinuxOptions != nil, detail)
		at.Absent("hostUsers", c.whole.HostUsers != nil, detail)
		at.Absent("hostPID", c.whole.HostPID, detail)
		at.Absent("hostIPC", c.whole.HostIPC, detail)
		sc.Absent("seccompProfile", s.SeccompProfile != nil, detail)
		sc.Absent("fsGroup", s.FSGroup != nil, detail)
		sc.Absent("fsGroupChangePolicy", s.FSGroupChangePolicy != nil, detail)
		sc.Absent("sysctls", len(s.Sysctls) > 0, detail)
		at.Absent("shareProcessNamespace", c.whole.ShareProcessNamespace != nil, detail)
		sc.Absent("runAsUser", s.RunAsUser != nil, detail)
		sc.Absent("runAsGroup", s.RunAsGroup != nil, detail)
		sc.Absent("supplementalGroups", s.SupplementalGroups != nil, detail)
		sc.Absent("supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil, detail)
		sc.Absent("seLinuxChangePolicy", s.SELinuxChangePolicy != nil, detail)
	}
	eachContainer(c.whole, func(list string, i int, ctr *corev1.Container) {
		s := ctr.SecurityContext
		if s == nil {
			return
		}
		sc := at.Index(list, i).Child("securityContext")
		sc.Absent("appArmorProfile", s.AppArmorProfile != nil, detail)
		sc.Absent("seLinuxOptions", s.SELinuxOptions != nil, detail)
		sc.Absent("seccompProfile", s.SeccompProfile != nil, detail)
		sc.Absent("capabilities", s.Capabilities != nil, detail)
		sc.Absent("readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil, detail)
		sc.Absent("privileged", s.Privileged != nil, detail)
		sc.Absent("allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil, detail)
		sc.Absent("procMount", s.ProcMount != nil, detail)
		sc.Absent("runAsUser", s.RunAsUser != nil, detail)
		sc.Absent("runAsGroup", s.RunAsGroup != nil, detail)
	})
}
