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
func (c *check) validatePodSecurity(fld validate.Field, context *corev1.PodSecurityContext) {
	fld.CheckGroupID("fsGroup", context.FSGroup)
	fld.CheckUserID("runAsUser", context.RunAsUser)
	fld.CheckGroupID("runAsGroup", context.RunAsGroup)
	fld.CheckGroupIDs("supplementalGroups", context.SupplementalGroups)
	// As in Kubernetes, the error path is below the security context, though the field is not.
	if share := c.spec.ShareProcessNamespace; share != nil && *share && c.spec.HostPID {
		fld.Invalid("shareProcessNamespace", *share, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	c.validateSysctls(fld, context.Sysctls)
	validate.OptionalOneOf(fld, "fsGroupChangePolicy", context.FSGroupChangePolicy, corev1.FSGroupChangeAlways,
		corev1.FSGroupChangeOnRootMismatch)
	validate.Optional(fld, "seccompProfile", context.SeccompProfile, validateSeccomp)
	validate.Optional(fld, "windowsOptions", context.WindowsOptions, validateWindowsOptions)
	validate.Optional(fld, "appArmorProfile", context.AppArmorProfile, validateAppArmor)
	validate.OptionalOneOf(fld, "supplementalGroupsPolicy", context.SupplementalGroupsPolicy,
		corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	if c.seLinuxMount || c.prior.seLinuxMount {
		validate.OptionalOneOf(fld, "seLinuxChangePolicy", context.SELinuxChangePolicy,
			corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
	} else {
		validate.OptionalOneOf(fld, "seLinuxChangePolicy", context.SELinuxChangePolicy, corev1.SELinuxChangePolicyRecursive)
	}
}

// validateSysctls requires distinct names, and rejects sysctls of namespaces that the pod shares with
// its host.
func (c *check) validateSysctls(fld validate.Field, sysctls []corev1.Sysctl) {
	seen := validate.Set[string]{}
	validate.Each(fld, "sysctls", sysctls, func(fld validate.Field, sysctl *corev1.Sysctl) {
		switch {
		case sysctl.Name == "":
			fld.Required("name", "")
		case len(sysctl.Name) > maxSysctlName || !sysctlName.MatchString(sysctl.Name):
			fld.Invalid("name", sysctl.Name, "must have at most 253 characters and match regex "+sysctlName.String())
		case seen.Has(sysctl.Name):
			fld.Duplicate("name", sysctl.Name)
		}
		seen.Add(sysctl.Name)
		if c.prior.hostSysctl {
			return
		}
		switch namespace := sysctlNamespace(sysctl.Name); {
		case namespace == "net" && c.spec.HostNetwork:
			fld.Invalid("name", sysctl.Name, "may not be specified when 'hostNetwork' is true")
		case namespace == "ipc" && c.spec.HostIPC:
			fld.Invalid("name", sysctl.Name, "may not be specified when 'hostIPC' is true")
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
func (c *check) validateSecurity(fld validate.Field, securityContext *corev1.SecurityContext) {
	privileged := securityContext.Privileged != nil && *securityContext.Privileged
	fld.ForbidSet("privileged", privileged && !c.privileged, "disallowed by cluster policy")
	fld.CheckUserID("runAsUser", securityContext.RunAsUser)
	fld.CheckGroupID("runAsGroup", securityContext.RunAsGroup)
	if m := securityContext.ProcMount; m != nil {
		validate.OneOf(fld, "procMount", *m, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if c.usesHostUsers() && *m == corev1.UnmaskedProcMount {
			fld.Invalid("procMount", *m, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	validate.Optional(fld, "seccompProfile", securityContext.SeccompProfile, validateSeccomp)
	if allow := securityContext.AllowPrivilegeEscalation; allow != nil && !*allow {
		if privileged {
			fld.Invalid("", *securityContext, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		if securityContext.Capabilities != nil && slices.Contains(securityContext.Capabilities.Add, "CAP_SYS_ADMIN") {
			fld.Invalid("", *securityContext, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
		}
	}
	validate.Optional(fld, "windowsOptions", securityContext.WindowsOptions, validateWindowsOptions)
	validate.Optional(fld, "appArmorProfile", securityContext.AppArmorProfile, validateAppArmor)
}

func validateSeccomp(fld validate.Field, seccompProfile *corev1.SeccompProfile) {
	if seccompProfile.Type == "" {
		fld.Required("type", "type is required when seccompProfile is set")
	} else {
		validate.OneOf(fld, "type", seccompProfile.Type,
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	switch {
	case seccompProfile.Type != corev1.SeccompProfileTypeLocalhost:
		if seccompProfile.LocalhostProfile != nil {
			fld.Invalid("localhostProfile", *seccompProfile, "can only be set when seccomp type is Localhost")
		}
	case seccompProfile.LocalhostProfile == nil:
		fld.Required("localhostProfile", "must be set when seccomp type is Localhost")
	default:
		validateDescendingPath(fld, "localhostProfile", *seccompProfile.LocalhostProfile)
	}
}

func validateAppArmor(fld validate.Field, appArmorProfile *corev1.AppArmorProfile) {
	const required = "must be set when AppArmor type is Localhost"
	switch appArmorProfile.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		if appArmorProfile.LocalhostProfile == nil {
			fld.Required("localhostProfile", required)
			return
		}
		name := *appArmorProfile.LocalhostProfile
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
		if appArmorProfile.LocalhostProfile != nil {
			fld.Invalid("localhostProfile", *appArmorProfile.LocalhostProfile, "can only be set when AppArmor type is Localhost")
		}
	case "":
		fld.Required("type", "type is required when appArmorProfile is set")
	default:
		validate.OneOf(fld, "type", appArmorProfile.Type,
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

func validateWindowsOptions(fld validate.Field, options *corev1.WindowsSecurityContextOptions) {
	if name := options.GMSACredentialSpecName; name != nil {
		fld.CheckText("gmsaCredentialSpecName", *name, validate.DNSSubdomain)
	}
	if spec := options.GMSACredentialSpec; spec != nil {
		switch {
		case *spec == "":
			fld.Invalid("gmsaCredentialSpec", *spec, "gmsaCredentialSpec cannot be an empty string")
		case len(*spec) > maxCredentialSpec:
			fld.Invalid("gmsaCredentialSpec", *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpec>>10))
		}
	}
	if options.RunAsUserName != nil {
		validateWindowsUserName(fld, *options.RunAsUserName)
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
// fields of the pod spec and of podOS.
func (c *check) validateOS(spec, fld validate.Field, podOS *corev1.PodOS) {
	switch podOS.Name {
	case "":
		fld.Required("name", "cannot be empty")
	case corev1.Linux:
		c.validateLinuxFields(spec)
	case corev1.Windows:
		c.validateWindowsFields(spec)
	default:
		validate.OneOf(fld, "", podOS.Name, corev1.Linux, corev1.Windows)
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
		field := fld.Child("securityContext")
		field.ForbidSet("appArmorProfile", s.AppArmorProfile != nil, detail)
		field.ForbidSet("seLinuxOptions", s.SELinuxOptions != nil, detail)
		fld.ForbidSet("hostUsers", c.spec.HostUsers != nil, detail)
		fld.ForbidSet("hostPID", c.spec.HostPID, detail)
		fld.ForbidSet("hostIPC", c.spec.HostIPC, detail)
		field.ForbidSet("seccompProfile", s.SeccompProfile != nil, detail)
		field.ForbidSet("fsGroup", s.FSGroup != nil, detail)
		field.ForbidSet("fsGroupChangePolicy", s.FSGroupChangePolicy != nil, detail)
		field.ForbidSet("sysctls", len(s.Sysctls) > 0, detail)
		fld.ForbidSet("shareProcessNamespace", c.spec.ShareProcessNamespace != nil, detail)
		field.ForbidSet("runAsUser", s.RunAsUser != nil, detail)
		field.ForbidSet("runAsGroup", s.RunAsGroup != nil, detail)
		field.ForbidSet("supplementalGroups", s.SupplementalGroups != nil, detail)
		field.ForbidSet("supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil, detail)
		field.ForbidSet("seLinuxChangePolicy", s.SELinuxChangePolicy != nil, detail)
	}
	eachContainer(c.spec, func(list string, i int, ctr *corev1.Container) {
		s := ctr.SecurityContext
		if s == nil {
			return
		}
		field := fld.Index(list, i).Child("securityContext")
		field.ForbidSet("appArmorProfile", s.AppArmorProfile != nil, detail)
		field.ForbidSet("seLinuxOptions", s.SELinuxOptions != nil, detail)
		field.ForbidSet("seccompProfile", s.SeccompProfile != nil, detail)
		field.ForbidSet("capabilities", s.Capabilities != nil, detail)
		field.ForbidSet("readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil, detail)
		field.ForbidSet("privileged", s.Privileged != nil, detail)
		field.ForbidSet("allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil, detail)
		field.ForbidSet("procMount", s.ProcMount != nil, detail)
		field.ForbidSet("runAsUser", s.RunAsUser != nil, detail)
		field.ForbidSet("runAsGroup", s.RunAsGroup != nil, detail)
	})
}
