package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// Status validates a change of a pod's status.
func (r *Rules) Status(fldPath validate.Path, p, old *corev1.Pod) {
	c := r.updateCheck(p, old)
	c.annotationChanges(fldPath, p, old)
	conditionRules(fldPath, p.Status.Conditions)
	s := &p.Status
	was := &old.Status
	path := fldPath.Child("status")
	path.Absent("nodeName", p.Spec.NodeName != old.Spec.NodeName, "may not be changed directly")
	if s.NominatedNodeName != was.NominatedNodeName {
		path.OptionalText("nominatedNodeName", s.NominatedNodeName, validate.DNSSubdomain)
	}
	path.Immutable("qosClass", s.QOSClass, was.QOSClass)
	restartRules(path, "containerStatuses", s.ContainerStatuses, was.ContainerStatuses, old.Spec.RestartPolicy, nil)
	restartRules(path, "initContainerStatuses", s.InitContainerStatuses, was.InitContainerStatuses, old.Spec.RestartPolicy, old.Spec.InitContainers)
	// Ephemeral containers never restart.
	restartRules(path, "ephemeralContainerStatuses", s.EphemeralContainerStatuses, was.EphemeralContainerStatuses, corev1.RestartPolicyNever, nil)
	claimStatusRules(path, p)
	addressRules(path, s)
	for _, list := range []struct {
		name     string
		statuses []corev1.ContainerStatus
	}{
		{"containerStatuses", s.ContainerStatuses},
		{"initContainerStatuses", s.InitContainerStatuses},
		{"ephemeralContainerStatuses", s.EphemeralContainerStatuses},
	} {
		validate.Each(path, list.name, list.statuses, func(fldPath validate.Path, s *corev1.ContainerStatus) { userRules(fldPath, s, p.Spec.OS) })
	}
	validate.Each(path, "containerStatuses", s.ContainerStatuses, healthRules(p.Spec.Containers))
	validate.Each(path, "initContainerStatuses", s.InitContainerStatuses, healthRules(p.Spec.InitContainers))
	validate.Each(path, "ephemeralContainerStatuses", s.EphemeralContainerStatuses, func(fldPath validate.Path, s *corev1.ContainerStatus) {
		fldPath.Absent("allocatedResourcesStatus", len(s.AllocatedResourcesStatus) > 0, "must not be specified in container status")
	})
}

// conditionRules reports error paths below metadata, as in Kubernetes.
func conditionRules(fldPath validate.Path, conditions []corev1.PodCondition) {
	validate.Each(fldPath.Child("metadata"), "conditions", conditions, func(fldPath validate.Path, c *corev1.PodCondition) {
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		default:
			fldPath.Text("Type", string(c.Type), validate.QualifiedName)
		}
	})
}

// restartRules rejects status changes of terminated containers that must not restart. Sidecars
// among init containers may always restart.
func restartRules(fldPath validate.Path, name string, now, before []corev1.ContainerStatus, policy corev1.RestartPolicy, init []corev1.Container) {
	if policy == corev1.RestartPolicyAlways {
		return
	}
	sidecars, going := validate.Set[string]{}, validate.Set[string]{}
	for i := range init {
		if isSidecar(&init[i]) {
			sidecars.Add(init[i].Name)
		}
	}
	for i := range now {
		if now[i].State.Terminated == nil {
			going.Add(now[i].Name)
		}
	}
	for i := range before {
		was := &before[i]
		ended := was.State.Terminated
		if ended == nil || ended.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure {
			continue
		}
		if !sidecars.Has(was.Name) && going.Has(was.Name) {
			fldPath.Index(name, i).Forbidden("state", "may not be transitioned to non-terminated state")
		}
	}
}

func claimStatusRules(fldPath validate.Path, p *corev1.Pod) {
	claims := validate.KeySet(p.Spec.ResourceClaims, func(c *corev1.PodResourceClaim) string { return c.Name })
	seen := validate.Set[string]{}
	validate.Each(fldPath, "resourceClaimStatuses", p.Status.ResourceClaimStatuses, func(fldPath validate.Path, s *corev1.PodResourceClaimStatus) {
		if !claims.Has(s.Name) {
			fldPath.Invalid("name", s.Name, "must match the name of an entry in `spec.resourceClaims`")
		}
		validate.Unique(fldPath, "name", s.Name, seen)
		if s.ResourceClaimName != nil {
			fldPath.Text("name", *s.ResourceClaimName, validate.DNSSubdomain)
		}
	})
}

func addressRules(fldPath validate.Path, s *corev1.PodStatus) {
	ips := make([]string, len(s.PodIPs))
	validate.Each(fldPath, "podIPs", s.PodIPs, func(fldPath validate.Path, ip *corev1.PodIP) { fldPath.IP("", ip.IP) })
	for i := range s.PodIPs {
		ips[i] = s.PodIPs[i].IP
	}
	fldPath.DualStackIPs("podIPs", s.PodIPs, ips)
	uniqueAddresses(fldPath, "podIPs", ips)
	if len(s.HostIPs) == 0 {
		return
	}
	if s.HostIP != s.HostIPs[0].IP {
		fldPath.Index("hostIPs", 0).Invalid("ip", s.HostIPs[0].IP, "must be equal to `hostIP`")
	}
	ips = make([]string, len(s.HostIPs))
	validate.Each(fldPath, "hostIPs", s.HostIPs, func(fldPath validate.Path, ip *corev1.HostIP) { fldPath.IP("", ip.IP) })
	for i := range s.HostIPs {
		ips[i] = s.HostIPs[i].IP
	}
	uniqueAddresses(fldPath, "hostIPs", ips)
	fldPath.DualStackIPs("hostIPs", s.HostIPs, ips)
}

func uniqueAddresses(fldPath validate.Path, name string, ips []string) {
	seen := validate.Set[string]{}
	validate.Each(fldPath, name, ips, func(fldPath validate.Path, ip *string) {
		if !seen.Add(*ip) {
			fldPath.Duplicate("", corev1.PodIP{IP: *ip})
		}
	})
}

func userRules(fldPath validate.Path, s *corev1.ContainerStatus, os *corev1.PodOS) {
	if s.User == nil || s.User.Linux == nil {
		return
	}
	if os != nil && os.Name == corev1.Windows {
		fldPath.Forbidden("linux", "cannot be set for a windows pod")
		return
	}
	user := fldPath.Child("linux")
	user.UserID("uid", &s.User.Linux.UID)
	user.GroupID("gid", &s.User.Linux.GID)
	user.GroupIDs("supplementalGroups", s.User.Linux.SupplementalGroups)
}

// healthRules requires the health of resources that the container has.
func healthRules(containers []corev1.Container) func(validate.Path, *corev1.ContainerStatus) {
	index := validate.KeyIndex(containers, func(c *corev1.Container) string { return c.Name })
	return func(fldPath validate.Path, s *corev1.ContainerStatus) {
		i, there := index[s.Name]
		validate.Each(fldPath, "allocatedResourcesStatus", s.AllocatedResourcesStatus, func(fldPath validate.Path, r *corev1.ResourceStatus) {
			if there {
				allocatedRules(fldPath, r.Name, &containers[i])
			}
			seen := validate.Set[corev1.ResourceID]{}
			validate.Each(fldPath, "resources", r.Resources, func(fldPath validate.Path, h *corev1.ResourceHealth) {
				validate.OneOf(fldPath, "health", h.Health,
					corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)
				validate.Unique(fldPath, "resourceID", h.ResourceID, seen)
			})
		})
	}
}

func allocatedRules(fldPath validate.Path, name corev1.ResourceName, ctr *corev1.Container) {
	claim, isClaim := strings.CutPrefix(string(name), "claim:")
	if !isClaim {
		if _, ok := ctr.Resources.Requests[name]; !ok {
			fldPath.Invalid("name", name, "must match one of the container's resource requests")
		}
		return
	}
	if !slices.ContainsFunc(ctr.Resources.Claims, func(c corev1.ResourceClaim) bool {
		return claim == c.Name && c.Request == "" || claim == c.Name+"/"+c.Request && c.Request != ""
	}) {
		fldPath.Invalid("name", name, "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")
	}
}
