package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// Status validates a change of a pod's status.
func (r *Rules) Status(at validate.At, p, old *corev1.Pod) {
	c := r.updateCheck(p, old)
	c.annotationChanges(at, p, old)
	conditionRules(at, p.Status.Conditions)
	s := &p.Status
	was := &old.Status
	place := at.Child("status")
	place.Absent("nodeName", p.Spec.NodeName != old.Spec.NodeName, "may not be changed directly")
	if s.NominatedNodeName != was.NominatedNodeName {
		place.OptionalText("nominatedNodeName", s.NominatedNodeName, validate.DNSSubdomain)
	}
	place.Immutable("qosClass", s.QOSClass, was.QOSClass)
	restartRules(place, "containerStatuses", s.ContainerStatuses, was.ContainerStatuses, old.Spec.RestartPolicy, nil)
	restartRules(place, "initContainerStatuses", s.InitContainerStatuses, was.InitContainerStatuses, old.Spec.RestartPolicy, old.Spec.InitContainers)
	// Ephemeral containers never restart.
	restartRules(place, "ephemeralContainerStatuses", s.EphemeralContainerStatuses, was.EphemeralContainerStatuses, corev1.RestartPolicyNever, nil)
	claimStatusRules(place, p)
	addressRules(place, s)
	for _, list := range []struct {
		name     string
		statuses []corev1.ContainerStatus
	}{
		{"containerStatuses", s.ContainerStatuses},
		{"initContainerStatuses", s.InitContainerStatuses},
		{"ephemeralContainerStatuses", s.EphemeralContainerStatuses},
	} {
		validate.Each(place, list.name, list.statuses, func(at validate.At, s *corev1.ContainerStatus) { userRules(at, s, p.Spec.OS) })
	}
	validate.Each(place, "containerStatuses", s.ContainerStatuses, healthRules(p.Spec.Containers))
	validate.Each(place, "initContainerStatuses", s.InitContainerStatuses, healthRules(p.Spec.InitContainers))
	validate.Each(place, "ephemeralContainerStatuses", s.EphemeralContainerStatuses, func(at validate.At, s *corev1.ContainerStatus) {
		at.Absent("allocatedResourcesStatus", len(s.AllocatedResourcesStatus) > 0, "must not be specified in container status")
	})
}

// conditionRules reports error paths below metadata, as in Kubernetes.
func conditionRules(at validate.At, conditions []corev1.PodCondition) {
	validate.Each(at.Child("metadata"), "conditions", conditions, func(at validate.At, c *corev1.PodCondition) {
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		default:
			at.Text("Type", string(c.Type), validate.QualifiedName)
		}
	})
}

// restartRules rejects status changes of terminated containers that must not restart. Sidecars
// among init containers may always restart.
func restartRules(at validate.At, name string, now, before []corev1.ContainerStatus, policy corev1.RestartPolicy, init []corev1.Container) {
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
			at.Index(name, i).Forbidden("state", "may not be transitioned to non-terminated state")
		}
	}
}

func claimStatusRules(at validate.At, p *corev1.Pod) {
	claims := validate.SetOf(p.Spec.ResourceClaims, func(c *corev1.PodResourceClaim) string { return c.Name })
	seen := validate.Set[string]{}
	validate.Each(at, "resourceClaimStatuses", p.Status.ResourceClaimStatuses, func(at validate.At, s *corev1.PodResourceClaimStatus) {
		if !claims.Has(s.Name) {
			at.Invalid("name", s.Name, "must match the name of an entry in `spec.resourceClaims`")
		}
		validate.Unique(at, "name", s.Name, seen)
		if s.ResourceClaimName != nil {
			at.Text("name", *s.ResourceClaimName, validate.DNSSubdomain)
		}
	})
}

func addressRules(at validate.At, s *corev1.PodStatus) {
	ips := make([]string, len(s.PodIPs))
	validate.Each(at, "podIPs", s.PodIPs, func(at validate.At, ip *corev1.PodIP) { at.IP("", ip.IP) })
	for i := range s.PodIPs {
		ips[i] = s.PodIPs[i].IP
	}
	at.DualStackIPs("podIPs", s.PodIPs, ips)
	uniqueAddresses(at, "podIPs", ips)
	if len(s.HostIPs) == 0 {
		return
	}
	if s.HostIP != s.HostIPs[0].IP {
		at.Index("hostIPs", 0).Invalid("ip", s.HostIPs[0].IP, "must be equal to `hostIP`")
	}
	ips = make([]string, len(s.HostIPs))
	validate.Each(at, "hostIPs", s.HostIPs, func(at validate.At, ip *corev1.HostIP) { at.IP("", ip.IP) })
	for i := range s.HostIPs {
		ips[i] = s.HostIPs[i].IP
	}
	uniqueAddresses(at, "hostIPs", ips)
	at.DualStackIPs("hostIPs", s.HostIPs, ips)
}

func uniqueAddresses(at validate.At, name string, ips []string) {
	seen := validate.Set[string]{}
	validate.Each(at, name, ips, func(at validate.At, ip *string) {
		if !seen.Add(*ip) {
			at.Duplicate("", corev1.PodIP{IP: *ip})
		}
	})
}

func userRules(at validate.At, s *corev1.ContainerStatus, os *corev1.PodOS) {
	if s.User == nil || s.User.Linux == nil {
		return
	}
	if os != nil && os.Name == corev1.Windows {
		at.Forbidden("linux", "cannot be set for a windows pod")
		return
	}
	user := at.Child("linux")
	user.User("uid", &s.User.Linux.UID)
	user.Group("gid", &s.User.Linux.GID)
	user.Groups("supplementalGroups", s.User.Linux.SupplementalGroups)
}

// healthRules requires the health of resources that the container has.
func healthRules(containers []corev1.Container) func(validate.At, *corev1.ContainerStatus) {
	index := validate.IndexOf(containers, func(c *corev1.Container) string { return c.Name })
	return func(at validate.At, s *corev1.ContainerStatus) {
		i, there := index[s.Name]
		validate.Each(at, "allocatedResourcesStatus", s.AllocatedResourcesStatus, func(at validate.At, r *corev1.ResourceStatus) {
			if there {
				allocatedRules(at, r.Name, &containers[i])
			}
			seen := validate.Set[corev1.ResourceID]{}
			validate.Each(at, "resources", r.Resources, func(at validate.At, h *corev1.ResourceHealth) {
				validate.OneOf(at, "health", h.Health,
					corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)
				validate.Unique(at, "resourceID", h.ResourceID, seen)
			})
		})
	}
}

func allocatedRules(at validate.At, name corev1.ResourceName, ctr *corev1.Container) {
	claim, isClaim := strings.CutPrefix(string(name), "claim:")
	if !isClaim {
		if _, ok := ctr.Resources.Requests[name]; !ok {
			at.Invalid("name", name, "must match one of the container's resource requests")
		}
		return
	}
	if !slices.ContainsFunc(ctr.Resources.Claims, func(c corev1.ResourceClaim) bool {
		return claim == c.Name && c.Request == "" || claim == c.Name+"/"+c.Request && c.Request != ""
	}) {
		at.Invalid("name", name, "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")
	}
}
