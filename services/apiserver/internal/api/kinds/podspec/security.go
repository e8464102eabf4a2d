package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// Maximum lengths in bytes.
const (
	maxSysctlName  = 253
	maxProfilePath = 4095 // of an AppArmor profile's name
)

var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

// usesHostUsers reports whether the pod uses the user namespace of its host.
func (c *check) usesHostUsers() bool { return c.spec.HostUsers == nil || *c.spec.HostUsers }

// validatePodSecurity validates the security context of the pod.
func (c *check) validatePodSecurity(fld validate.Field, s *corev1.PodSecurityContext) {
	fld.CheckGroupID("fsGroup", s.FSGroup)
	fld.CheckUserID("runAsUser", s.RunAsUser)
	fld.CheckGroupID("runAsGroup", s.RunAsGroup)
	fld.CheckGroupIDs("supplementalGroups", s.SupplementalGroups)
	// As in Kubernetes, the error path is below the security context, though the field is not.
	if share := c.spec.ShareProcessNamespace; share != nil && *share && c.spec.HostPID {
		fld.Invalid("shareProcessNamespace", *share, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	c.validateSysctls(fld, s.Sysctls)
	validate.OptionalOneOf(fld, "fsGroupChangePolicy", s.FSGroupChangePolicy, corev1.FSGroupChangeAlways,
		corev1.FSGroupChangeOnRootMismatch)
	validate.Optional(fld, "seccompProfile", s.SeccompProfile, validateSeccomp)
	validate.Optional(fld, "windowsOptions", s.WindowsOptions, validateWindowsOptions)
	validate.Optional(fld, "appArmorProfile", s.AppArmorProfile, validateAppArmor)
	validate.OptionalOneOf(fld, "supplementalGroupsPolicy", s.SupplementalGroupsPolicy,
		corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	if c.seLinuxMount || c.prior.seLinuxMount {
		validate.OptionalOneOf(fld, "seLinuxChangePolicy", s.SELinuxChangePolicy,
			corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
	} else {
		validate.OptionalOneOf(fld, "seLinuxChangePolicy", s.SELinuxChangePolicy, corev1.SELinuxChangePolicyRecursive)
	}
}

// validateSysctls requires distinct names, and rejects sysctls of namespaces that the pod shares with
// its host.
func (c *check) validateSysctls(fld validate.Field, sysctls []corev1.Sysctl) {
	seen := validate.Set[string]{}
	validate.Each(fld, "sysctls", sysctls, func(fld validate.Field, s *corev1.Sysctl) {
		switch {
		case s.Name == "":
			fld.Required("name", "")
		case len(s.Name) > maxSysctlName || !sysctlName.MatchString(s.Name):
			fld.Invalid("name", s.Name, "must have at most 253 characters and match regex "+sysctlName.String())
		case seen.Has(s.Name):
			fld.Duplicate("name", s.Name)
		}
		seen.Add(s.Name)
		if c.prior.hostSysctl {
			return
		}
		switch namespace := sysctlNamespace(s.Name); {
		case namespace == "net" && c.spec.HostNetwork:
			fld.Invalid("name", s.Name, "may not be specified when 'hostNetwork' is true")
		case namespace == "ipc" && c.spec.HostIPC:
			fld.Invalid("name", s.Name, "may not be specified when 'hostIPC' is true")
		}
	})
}

// sysctlNamespace returns the kernel namespace of a parameter, or "" if it has none.
func sysctlNamespace(name string) string {
	// If the first separator is a slash, slashes and dots are exchanged.
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
		name = strings.NewReplacer("/", ".", ".", "/").Replace(name)
	}
	switch {
	case strings.HasPrefix(name, "net."):
		return "net"
	case name == "kernel.sem",
		strings.HasPrefix(name, "kernel.shm"),
		strings.HasPrefix(name, "kernel.msg"),
		strings.HasPrefix(name, "fs.mqueue."):
		return "ipc"
	default:
		return ""
	}
}

// hasHostSysctl reports whether the pod sets a sysctl of a namespace that it shares with its host.
func hasHostSysctl(s *corev1.PodSpec) bool {
	return s.SecurityContext != nil && slices.ContainsFunc(s.SecurityContext.Sysctls, func(c corev1.Sysctl) bool {
		namespace := sysctlNamespace(c.Name)
		return namespace == "net" && s.HostNetwork || namespace == "ipc" && s.HostIPC
	})
}

// validateSecurity validates the security context of a container.
func (c *check) validateSecurity(fld validate.Field, s *corev1.SecurityContext) {
	privileged := s.Privileged != nil && *s.Privileged
	fld.ForbidSet("privileged", privileged && !c.privileged, "disallowed by cluster policy")
	fld.CheckUserID("runAsUser", s.RunAsUser)
	fld.CheckGroupID("runAsGroup", s.RunAsGroup)
	if m := s.ProcMount; m != nil {
		validate.OneOf(fld, "procMount", *m, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if c.usesHostUsers() && *m == corev1.UnmaskedProcMount {
			fld.Invalid("procMount", *m, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	validate.Optional(fld, "seccompProfile", s.SeccompProfile, validateSeccomp)
	if allow := s.AllowPrivilegeEscalation; allow != nil && !*allow {
		if privileged {
			fld.Invalid("", *s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
			fld.Invalid("", *s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
		}
	}
	validate.Optional(fld, "windowsOptions", s.WindowsOptions, validateWindowsOptions)
	validate.Optional(fld, "appArmorProfile", s.AppArmorProfile, validateAppArmor)
}

func validateSeccomp(fld validate.Field, p *corev1.SeccompProfile) {
	if p.Type == "" {
		fld.Required("type", "type is required when seccompProfile is set")
	} else {
		validate.OneOf(fld, "type", p.Type,
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	switch {
	case p.Type != corev1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			fld.Invalid("localhostProfile", *p, "can only be set when seccomp type is Localhost")
		}
	case p.LocalhostProfile == nil:
		fld.Required("localhostProfile", "must be set when seccomp type is Localhost")
	default:
		validateDescendingPath(fld, "localhostProfile", *p.LocalhostProfile)
	}
}

func validateAppArmor(fld validate.Field, p *corev1.AppArmorProfile) {
	const required = "must be set when AppArmor type is Localhost"
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			fld.Required("localhostProfile", required)
			return
		}
		name := *p.LocalhostProfile
		switch trimmed := strings.TrimSpace(name); {
		case trimmed != name:
			fld.Invalid("localhostProfile", name, "must not be padded with whitespace")
		case trimmed == "":
			fld.Required("localhostProfile", required)
		}
		if len(name) > maxProfilePath {
			fld.TooLong("localhostProfile", maxProfilePath)
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			fld.Invalid("localhostProfile", *p.LocalhostProfile, "can only be set when AppArmor type is Localhost")
		}
	case "":
		fld.Required("type", "type is required when appArmorProfile is set")
	default:
		validate.OneOf(fld, "type", p.Type,
			corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
}

// validateHostUsers rejects the use of other host namespaces by pods with a user namespace.
func (c *check) validateHostUsers(fld validate.Field) {
	if c.usesHostUsers() {
		return
	}
	const detail = "when `pod.Spec.HostUsers` is false"
	fld.ForbidSet("hostNetwork", c.spec.HostNetwork, detail)
	fld.ForbidSet("HostPID", c.spec.HostPID, detail)
	fld.ForbidSet("HostIPC", c.spec.HostIPC, detail)
}

// Maximum lengths in bytes of the options of Windows containers.
const (
	maxCredentialSpec = 64 << 10
	maxDomainName     = 255
	maxUserName       = 104
)

var (
	controlCharacters = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSName       = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDomain     = regexp.MustCompile(
		`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`,
	)
	badUserCharacters = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
	dotsAndSpaces     = regexp.MustCompile(`^[\. ]+$`)
)

func validateWindowsOptions(fld validate.Field, o *corev1.WindowsSecurityContextOptions) {
	if name := o.GMSACredentialSpecName; name != nil {
		fld.CheckText("gmsaCredentialSpecName", *name, validate.DNSSubdomain)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		switch {
		case *spec == "":
			fld.Invalid("gmsaCredentialSpec", *spec, "gmsaCredentialSpec cannot be an empty string")
		case len(*spec) > maxCredentialSpec:
			fld.Invalid("gmsaCredentialSpec", *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpec>>10))
		}
	}
	if o.RunAsUserName != nil {
		validateWindowsUserName(fld, *o.RunAsUserName)
	}
}

// validateWindowsUserName requires USER or DOMAIN\USER.
func validateWindowsUserName(fld validate.Field, name string) {
	reject := func(detail string) { fld.Invalid("runAsUserName", name, detail) }
	rejectIf := func(violated bool, detail string) {
		if violated {
			reject(detail)
		}
	}
	switch {
	case name == "":
		reject("runAsUserName cannot be an empty string")
		return
	case controlCharacters.MatchString(name):
		reject("runAsUserName cannot contain control characters")
		return
	case strings.Count(name, `\`) > 1:
		reject("runAsUserName cannot contain more than one backslash")
		return
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	rejectIf(len(domain) > maxDomainName, fmt.Sprintf("runAsUserName's Domain length must be under %d characters", maxDomainName+1))
	rejectIf(hasDomain && !netBIOSName.MatchString(domain) && !windowsDomain.MatchString(domain),
		"runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	rejectIf(user == "", "runAsUserName's User cannot be empty")
	rejectIf(len(user) > maxUserName, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", maxUserName))
	rejectIf(dotsAndSpaces.MatchString(user), "runAsUserName's User cannot contain only periods or spaces")
	rejectIf(badUserCharacters.MatchString(user), `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
}

// validateHostProcess requires all containers of a pod to be host processes if any of them is.
func (c *check) validateHostProcess(fld validate.Field) {
	var ofPod *bool
	if s := c.spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		ofPod = s.WindowsOptions.HostProcess
	}
	containers, hostProcesses := 0, 0
	eachContainer(c.spec, func(list string, i int, ctr *corev1.Container) {
		containers++
		ofContainer := ofPod
		if s := ctr.SecurityContext; s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil {
			ofContainer = s.WindowsOptions.HostProcess
			if ofPod != nil && *ofPod != *ofContainer {
				fld.Index(list, i).Child("securityContext", "windowsOptions").Invalid("hostProcess", *ofContainer,
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *ofPod))
			}
		}
		if ofContainer != nil && *ofContainer {
			hostProcesses++
		}
	})
	if hostProcesses == 0 {
		return
	}
	if hostProcesses != containers {
		fld.Invalid("", "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !c.spec.HostNetwork {
		fld.Invalid("hostNetwork", false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
	fld.ForbidSet("", !c.privileged, "hostProcess containers are disallowed by cluster policy")
}

// validateOS rejects fields that the pod's operating system does not support. spec and fld are the
// fields of the pod spec and of os.
func (c *check) validateOS(spec, fld validate.Field, os *corev1.PodOS) {
	switch os.Name {
	case "":
		fld.Required("name", "cannot be empty")
	case corev1.Linux:
		c.validateLinuxFields(spec)
	case corev1.Windows:
		c.validateWindowsFields(spec)
	default:
		validate.OneOf(fld, "", os.Name, corev1.Linux, corev1.Windows)
	}
}

// validateLinuxFields rejects Windows options.
func (c *check) validateLinuxFields(fld validate.Field) {
	const detail = "windows options cannot be set for a linux pod"
	if s := c.spec.SecurityContext; s != nil {
		fld.Child("securityContext").ForbidSet("windowsOptions", s.WindowsOptions != nil, detail)
	}
	eachContainer(c.spec, func(list string, i int, ctr *corev1.Container) {
		if s := ctr.SecurityContext; s != nil && s.WindowsOptions != nil {
			fld.Index(list, i).Child("securityContext").Forbidden("windowsOptions", detail)
		}
	})
}

// validateWindowsFields rejects Linux fields. As in Kubernetes, it rejects the fields of the pod spec
// only if the pod has a security context.
func (c *check) validateWindowsFields(fld validate.Field) {
	const detail = "cannot be set for a windows pod"
	if s := c.spec.SecurityContext; s != nil {
		sc := fld.Child("securityContext")
		sc.ForbidSet("appArmorProfile", s.AppArmorProfile != nil, detail)
		sc.ForbidSet("seLinuxOptions", s.SELinuxOptions != nil, detail)
		fld.ForbidSet("hostUsers", c.spec.HostUsers != nil, detail)
		fld.ForbidSet("hostPID", c.spec.HostPID, detail)
		fld.ForbidSet("hostIPC", c.spec.HostIPC, detail)
		sc.ForbidSet("seccompProfile", s.SeccompProfile != nil, detail)
		sc.ForbidSet("fsGroup", s.FSGroup != nil, detail)
		sc.ForbidSet("fsGroupChangePolicy", s.FSGroupChangePolicy != nil, detail)
		sc.ForbidSet("sysctls", len(s.Sysctls) > 0, detail)
		fld.ForbidSet("shareProcessNamespace", c.spec.ShareProcessNamespace != nil, detail)
		sc.ForbidSet("runAsUser", s.RunAsUser != nil, detail)
		sc.ForbidSet("runAsGroup", s.RunAsGroup != nil, detail)
		sc.ForbidSet("supplementalGroups", s.SupplementalGroups != nil, detail)
		sc.ForbidSet("supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil, detail)
		sc.ForbidSet("seLinuxChangePolicy", s.SELinuxChangePolicy != nil, detail)
	}
	eachContainer(c.spec, func(list string, i int, ctr *corev1.Container) {
		s := ctr.SecurityContext
		if s == nil {
			return
		}
		sc := fld.Index(list, i).Child("securityContext")
		sc.ForbidSet("appArmorProfile", s.AppArmorProfile != nil, detail)
		sc.ForbidSet("seLinuxOptions", s.SELinuxOptions != nil, detail)
		sc.ForbidSet("seccompProfile", s.SeccompProfile != nil, detail)
		sc.ForbidSet("capabilities", s.Capabilities != nil, detail)
		sc.ForbidSet("readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil, detail)
		sc.ForbidSet("privileged", s.Privileged != nil, detail)
		sc.ForbidSet("allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil, detail)
		sc.ForbidSet("procMount", s.ProcMount != nil, detail)
		sc.ForbidSet("runAsUser", s.RunAsUser != nil, detail)
		sc.ForbidSet("runAsGroup", s.RunAsGroup != nil, detail)
	})
}
