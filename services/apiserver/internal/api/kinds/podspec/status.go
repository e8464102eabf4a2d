package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// ValidateStatus validates a change of a pod's status.
func (r *Rules) ValidateStatus(fld validate.Field, pod, old *corev1.Pod) {
	r.updateCheck(pod, old).validateAnnotationChanges(fld, pod, old)
	podStatus, was := &pod.Status, &old.Status
	path := fld.Child("status")
	validateConditions(path, podStatus.Conditions)
	path.ForbidSet("nodeName", pod.Spec.NodeName != old.Spec.NodeName, "may not be changed directly")
	if podStatus.NominatedNodeName != was.NominatedNodeName {
		path.CheckOptionalText("nominatedNodeName", podStatus.NominatedNodeName, validate.DNSSubdomain)
	}
	path.CheckImmutable("qosClass", podStatus.QOSClass, was.QOSClass)
	validateRestarts(path, "containerStatuses", podStatus.ContainerStatuses, was.ContainerStatuses, old.Spec.RestartPolicy, nil)
	validateRestarts(
		path,
		"initContainerStatuses",
		podStatus.InitContainerStatuses,
		was.InitContainerStatuses,
		old.Spec.RestartPolicy,
		old.Spec.InitContainers,
	)
	// Ephemeral containers never restart.
	validateRestarts(
		path,
		"ephemeralContainerStatuses",
		podStatus.EphemeralContainerStatuses,
		was.EphemeralContainerStatuses,
		corev1.RestartPolicyNever,
		nil,
	)
	validateClaimStatuses(path, pod)
	validateAddresses(path, podStatus)
	for _, list := range []struct {
		name     string
		statuses []corev1.ContainerStatus
	}{
		{"containerStatuses", podStatus.ContainerStatuses},
		{"initContainerStatuses", podStatus.InitContainerStatuses},
		{"ephemeralContainerStatuses", podStatus.EphemeralContainerStatuses},
	} {
		validate.Each(
			path,
			list.name,
			list.statuses,
			func(fld validate.Field, s *corev1.ContainerStatus) { validateUser(fld, s, pod.Spec.OS) },
		)
	}
	validate.Each(path, "containerStatuses", podStatus.ContainerStatuses, healthRules(pod.Spec.Containers))
	validate.Each(path, "initContainerStatuses", podStatus.InitContainerStatuses, healthRules(pod.Spec.InitContainers))
	validate.Each(
		path,
		"ephemeralContainerStatuses",
		podStatus.EphemeralContainerStatuses,
		func(fld validate.Field, s *corev1.ContainerStatus) {
			fld.ForbidSet("allocatedResourcesStatus", len(s.AllocatedResourcesStatus) > 0, "must not be specified in container status")
		},
	)
}

// validateConditions requires a qualified name as the type of a condition that Kubernetes does not
// define.
func validateConditions(fld validate.Field, conditions []corev1.PodCondition) {
	validate.Each(fld, "conditions", conditions, func(fld validate.Field, podCondition *corev1.PodCondition) {
		switch podCondition.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		default:
			fld.CheckText("Type", string(podCondition.Type), validate.QualifiedName)
		}
	})
}

// validateRestarts rejects status changes of terminated containers that must not restart. Sidecars
// among init containers may always restart.
func validateRestarts(
	fld validate.Field,
	name string,
	now, before []corev1.ContainerStatus,
	policy corev1.RestartPolicy,
	init []corev1.Container,
) {
	if policy == corev1.RestartPolicyAlways {
		return
	}
	sidecars, nonTerminated := validate.Set[string]{}, validate.Set[string]{}
	for i := range init {
		if isSidecar(&init[i]) {
			sidecars.Add(init[i].Name)
		}
	}
	for i := range now {
		if now[i].State.Terminated == nil {
			nonTerminated.Add(now[i].Name)
		}
	}
	for i := range before {
		was := &before[i]
		terminated := was.State.Terminated
		mayRestart := terminated == nil ||
			terminated.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure ||
			sidecars.Has(was.Name)
		if !mayRestart && nonTerminated.Has(was.Name) {
			fld.Index(name, i).Forbidden("state", "may not be transitioned to non-terminated state")
		}
	}
}

// validateClaimStatuses requires that each status belongs to another resource claim of the pod.
func validateClaimStatuses(fld validate.Field, pod *corev1.Pod) {
	claims := validate.KeySet(pod.Spec.ResourceClaims, func(c *corev1.PodResourceClaim) string { return c.Name })
	seen := validate.Set[string]{}
	validate.Each(
		fld,
		"resourceClaimStatuses",
		pod.Status.ResourceClaimStatuses,
		func(fld validate.Field, status *corev1.PodResourceClaimStatus) {
			if !claims.Has(status.Name) {
				fld.Invalid("name", status.Name, "must match the name of an entry in `spec.resourceClaims`")
			}
			validate.Unique(fld, "name", status.Name, seen)
			if status.ResourceClaimName != nil {
				fld.CheckText("name", *status.ResourceClaimName, validate.DNSSubdomain)
			}
		},
	)
}

// validateAddresses validates the addresses of the pod and its host. As in Kubernetes, the two lists
// are validated in different orders.
func validateAddresses(fld validate.Field, podStatus *corev1.PodStatus) {
	ips := make([]string, len(podStatus.PodIPs))
	validate.Each(fld, "podIPs", podStatus.PodIPs, func(fld validate.Field, ip *corev1.PodIP) { fld.CheckIP("", ip.IP) })
	for i := range podStatus.PodIPs {
		ips[i] = podStatus.PodIPs[i].IP
	}
	fld.CheckDualStackIPs("podIPs", podStatus.PodIPs, ips)
	requireUniqueAddresses(fld, "podIPs", ips)
	if len(podStatus.HostIPs) == 0 {
		return
	}
	if podStatus.HostIP != podStatus.HostIPs[0].IP {
		fld.Index("hostIPs", 0).Invalid("ip", podStatus.HostIPs[0].IP, "must be equal to `hostIP`")
	}
	ips = make([]string, len(podStatus.HostIPs))
	validate.Each(fld, "hostIPs", podStatus.HostIPs, func(fld validate.Field, ip *corev1.HostIP) { fld.CheckIP("", ip.IP) })
	for i := range podStatus.HostIPs {
		ips[i] = podStatus.HostIPs[i].IP
	}
	requireUniqueAddresses(fld, "hostIPs", ips)
	fld.CheckDualStackIPs("hostIPs", podStatus.HostIPs, ips)
}

// requireUniqueAddresses rejects addresses that occur twice.
func requireUniqueAddresses(fld validate.Field, name string, ips []string) {
	seen := validate.Set[string]{}
	validate.Each(fld, name, ips, func(fld validate.Field, ip *string) {
		if !seen.Add(*ip) {
			fld.Duplicate("", corev1.PodIP{IP: *ip})
		}
	})
}

// validateUser validates the user of a container, which a Windows pod must not have.
func validateUser(fld validate.Field, status *corev1.ContainerStatus, podOS *corev1.PodOS) {
	if status.User == nil || status.User.Linux == nil {
		return
	}
	if podOS != nil && podOS.Name == corev1.Windows {
		fld.Forbidden("linux", "cannot be set for a windows pod")
		return
	}
	user := fld.Child("linux")
	user.CheckUserID("uid", &status.User.Linux.UID)
	user.CheckGroupID("gid", &status.User.Linux.GID)
	user.CheckGroupIDs("supplementalGroups", status.User.Linux.SupplementalGroups)
}

// healthRules returns the rules of allocatedResourcesStatus in the status of one of the containers.
func healthRules(containers []corev1.Container) func(validate.Field, *corev1.ContainerStatus) {
	index := validate.KeyIndex(containers, func(c *corev1.Container) string { return c.Name })
	return func(fld validate.Field, s *corev1.ContainerStatus) {
		i, exists := index[s.Name]
		validate.Each(
			fld,
			"allocatedResourcesStatus",
			s.AllocatedResourcesStatus,
			func(fld validate.Field, r *corev1.ResourceStatus) {
				if exists {
					validateAllocatedResource(fld, r.Name, &containers[i])
				}
				seen := validate.Set[corev1.ResourceID]{}
				validate.Each(fld, "resources", r.Resources, func(fld validate.Field, h *corev1.ResourceHealth) {
					validate.OneOf(fld, "health", h.Health,
						corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)
					validate.Unique(fld, "resourceID", h.ResourceID, seen)
				})
			},
		)
	}
}

// validateAllocatedResource requires a resource or claim that the container requests.
func validateAllocatedResource(fld validate.Field, name corev1.ResourceName, ctr *corev1.Container) {
	claim, isClaim := strings.CutPrefix(string(name), "claim:")
	if !isClaim {
		if _, ok := ctr.Resources.Requests[name]; !ok {
			fld.Invalid("name", name, "must match one of the container's resource requests")
		}
		return
	}
	if !slices.ContainsFunc(ctr.Resources.Claims, func(c corev1.ResourceClaim) bool {
		return claim == c.Name && c.Request == "" || claim == c.Name+"/"+c.Request && c.Request != ""
	}) {
		fld.Invalid("name", name,
			"must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")
	}
}
