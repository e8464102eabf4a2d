package podspec

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/podqos"
	"binnacle/services/apiserver/internal/registry/validate"
)

// ValidateResize validates a change of the resources of a pod's containers (KEP-1287): cpu and
// memory, within the pod's QoS class.
func (r *Rules) ValidateResize(fld validate.Field, pod, old *corev1.Pod) {
	reject := func(detail string) { fld.Add(field.Forbidden(field.NewPath(""), detail)) }
	if hasPodResources(pod) || hasPodResources(old) {
		reject("pods with pod-level resources cannot be resized")
		return
	}
	if _, mirror := old.Annotations[mirrorAnnotation]; mirror {
		reject("static pods cannot be resized")
		return
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		reject("windows pods cannot be resized")
		return
	}
	r.updateCheck(pod, old).validateWholePod(fld, pod)
	if qosClassOf(old) != podqos.Class(&pod.Spec) {
		fld.Invalid("spec", pod.Status.QOSClass, "Pod QOS Class may not change as a result of resizing")
	}
	fld.ForbidSet("spec", !nodeSupportsResize(old), "Pod running on node without support for resize")
	validateResizedSpec(fld, pod, old)
}

// validateResizedSpec requires that only cpu and memory of containers and sidecars change.
func validateResizedSpec(fld validate.Field, pod, old *corev1.Pod) {
	spec := fld.Child("spec")
	errorsBefore := fld.ErrorCount()

	// 1. The containers must be the same.
	requireSameContainers(spec, "containers", pod.Spec.Containers, old.Spec.Containers)
	requireSameContainers(spec, "initContainers", pod.Spec.InitContainers, old.Spec.InitContainers)
	if fld.ErrorCount() > errorsBefore {
		return
	}

	// 2. The changes of their resources must be possible in place.
	for i := range old.Spec.InitContainers {
		if ctr := &old.Spec.InitContainers[i]; isSidecar(ctr) {
			validateResourceChanges(spec.Index("initContainers", i).Child("resources"), &pod.Spec.InitContainers[i], ctr)
		}
	}
	for i := range old.Spec.Containers {
		validateResourceChanges(spec.Index("containers", i).Child("resources"), &pod.Spec.Containers[i], &old.Spec.Containers[i])
	}

	// 3. Apart from cpu and memory, the spec must not change.
	rest := pod.Spec.DeepCopy()
	for i := range rest.Containers {
		restoreCompute(&rest.Containers[i], &old.Spec.Containers[i])
		fld.ForbidSet("spec", !validate.SemanticEqual(rest.Containers[i], old.Spec.Containers[i]),
			"only cpu and memory resources are mutable")
	}
	for i := range rest.InitContainers {
		ctr, was := &rest.InitContainers[i], &old.Spec.InitContainers[i]
		detail := "resources for non-sidecar init containers are immutable"
		if isSidecar(ctr) {
			restoreCompute(ctr, was)
			detail = "only cpu and memory resources for sidecar containers are mutable"
		}
		fld.ForbidSet("spec", !validate.SemanticEqual(*ctr, *was), detail)
	}
	fld.ForbidSet("spec", fld.ErrorCount() == 0 && !validate.SemanticEqual(rest, &old.Spec),
		"only cpu and memory resources are mutable")
}

// requireSameContainers requires the same containers in the same order.
func requireSameContainers(spec validate.Field, name string, now, was []corev1.Container) {
	if len(now) != len(was) {
		spec.Forbidden(name, name+" may not be added or removed on resize")
		return
	}
	for i := range was {
		spec.Index(name, i).ForbidSet("name", now[i].Name != was[i].Name, name+" may not be renamed or reordered on resize")
	}
}

func hasPodResources(p *corev1.Pod) bool {
	return p.Spec.Resources != nil && len(p.Spec.Resources.Requests)+len(p.Spec.Resources.Limits) > 0
}

// qosClassOf returns the QoS class that was assigned to a pod.
func qosClassOf(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return podqos.Class(&pod.Spec)
}

// nodeSupportsResize reports whether the pod's node supports resizing: such a node reports the
// resources of running containers.
func nodeSupportsResize(p *corev1.Pod) bool {
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.State.Running != nil {
			return s.Resources != nil
		}
	}
	return true
}

// validateResourceChanges rejects changes of the resources of a container that cannot be applied in
// place.
func validateResourceChanges(fld validate.Field, ctr, was *corev1.Container) {
	fld.ForbidSet("requests", removesResource(ctr.Resources.Requests, was.Resources.Requests),
		"resource requests cannot be removed")
	fld.ForbidSet("limits", removesResource(ctr.Resources.Limits, was.Resources.Limits), "resource limits cannot be removed")
	// A container that restarts can get less memory.
	for _, p := range ctr.ResizePolicy {
		if p.ResourceName == corev1.ResourceMemory && p.RestartPolicy == corev1.RestartContainer {
			return
		}
	}
	limit, hasLimit := ctr.Resources.Limits[corev1.ResourceMemory]
	oldLimit, hadLimit := was.Resources.Limits[corev1.ResourceMemory]
	memory := fld.Key("limits", string(corev1.ResourceMemory))
	memory.ForbidSet("", hasLimit && hadLimit && limit.Cmp(oldLimit) < 0,
		"memory limits cannot be decreased unless resizePolicy is RestartContainer")
	memory.ForbidSet("", hasLimit && !hadLimit, "memory limits cannot be added unless resizePolicy is RestartContainer")
}

// removesResource reports whether a resource has been removed from a list.
func removesResource(now, before corev1.ResourceList) bool {
	for name := range before {
		if _, ok := now[name]; !ok {
			return true
		}
	}
	return false
}

// restoreCompute restores the previous cpu and memory of a container.
func restoreCompute(ctr, was *corev1.Container) {
	restore := func(now, before corev1.ResourceList) corev1.ResourceList {
		if before == nil {
			return nil
		}
		out := corev1.ResourceList{}
		maps.Copy(out, now)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			delete(out, name)
			if q, ok := before[name]; ok {
				out[name] = q
			}
		}
		return out
	}
	ctr.Resources = corev1.ResourceRequirements{
		Limits:   restore(ctr.Resources.Limits, was.Resources.Limits),
		Requests: restore(ctr.Resources.Requests, was.Resources.Requests),
	}
}

// Drop clears the fields of disabled feature gates, unless the stored spec old has them. old is nil at
// creation.
func (r *Rules) Drop(podSpec, old *corev1.PodSpec) {
	if !r.podResources && (old == nil || old.Resources == nil) {
		podSpec.Resources = nil
	}
	if !r.resourceClaims && (old == nil || len(old.ResourceClaims) == 0) {
		podSpec.ResourceClaims = nil
		eachContainer(podSpec, func(_ string, _ int, container *corev1.Container) { container.Resources.Claims = nil })
	}
	if !r.imageVolumes && (old == nil || !slices.ContainsFunc(old.Volumes, isImage)) {
		dropImages(podSpec)
	}
	if !r.trustBundles && (old == nil || !hasProjectedSource(old, hasTrustBundle)) {
		hasProjectedSource(podSpec, func(p *corev1.VolumeProjection) bool { p.ClusterTrustBundle = nil; return false })
	}
	if !r.stopSignals && (old == nil || !anyLifecycle(old, hasStopSignal)) {
		eachContainer(podSpec, func(_ string, _ int, container *corev1.Container) {
			if l := container.Lifecycle; l != nil && hasStopSignal(l) {
				l.StopSignal = nil
				if *l == (corev1.Lifecycle{}) {
					container.Lifecycle = nil
				}
			}
		})
	}
	if !r.sleepAction && (old == nil || !anyLifecycle(old, hasSleep)) {
		anyLifecycle(podSpec, func(l *corev1.Lifecycle) bool { dropSleep(l); return false })
	}
	if !r.inPlaceResize && (old == nil || !hasResizePolicy(old)) {
		eachContainer(podSpec, func(_ string, _ int, container *corev1.Container) { container.ResizePolicy = nil })
	}
}

// hasResizePolicy reports whether a container or init container has a resize policy.
func hasResizePolicy(s *corev1.PodSpec) bool {
	has := func(c corev1.Container) bool { return len(c.ResizePolicy) > 0 }
	return slices.ContainsFunc(s.Containers, has) || slices.ContainsFunc(s.InitContainers, has)
}

// DropTemplate drops the same fields from a template.
func (r *Rules) DropTemplate(template, old *corev1.PodTemplateSpec) {
	if old == nil {
		r.Drop(&template.Spec, nil)
		return
	}
	r.Drop(&template.Spec, &old.Spec)
}

// DropStatus drops the same fields from the status of a pod.
func (r *Rules) DropStatus(p, old *corev1.Pod) {
	status := &p.Status
	if !r.resourceClaims && len(old.Spec.ResourceClaims) == 0 {
		status.ResourceClaimStatuses = nil
	}
	if !r.observedGeneration && old.Status.ObservedGeneration == 0 {
		status.ObservedGeneration = 0
		for i := range status.Conditions {
			status.Conditions[i].ObservedGeneration = 0
		}
	}
	for i, list := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses} {
		before := [][]corev1.ContainerStatus{old.Status.ContainerStatuses, old.Status.InitContainerStatuses, old.Status.EphemeralContainerStatuses}[i]
		for j := range list {
			if !r.inPlaceResize && !hasResizePolicy(&old.Spec) {
				list[j].Resources = nil
				list[j].AllocatedResources = nil
			}
			if !r.resourceHealth &&
				!slices.ContainsFunc(before, func(c corev1.ContainerStatus) bool { return c.AllocatedResourcesStatus != nil }) {
				list[j].AllocatedResourcesStatus = nil
			}
		}
	}
}

func isImage(v corev1.Volume) bool { return v.Image != nil }

// dropImages removes image volumes and their mounts.
func dropImages(podSpec *corev1.PodSpec) {
	names := map[string]bool{}
	for i := range podSpec.Volumes {
		if isImage(podSpec.Volumes[i]) {
			names[podSpec.Volumes[i].Name] = true
		}
	}
	if len(names) == 0 {
		return
	}
	podSpec.Volumes = slices.DeleteFunc(podSpec.Volumes, isImage)
	eachContainer(podSpec, func(_ string, _ int, c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return names[m.Name] })
	})
}

// hasProjectedSource reports whether matches returns true for any source of projected volumes.
func hasProjectedSource(s *corev1.PodSpec, matches func(*corev1.VolumeProjection) bool) bool {
	for i := range s.Volumes {
		if p := s.Volumes[i].Projected; p != nil {
			for j := range p.Sources {
				if matches(&p.Sources[j]) {
					return true
				}
			}
		}
	}
	return false
}

func hasTrustBundle(p *corev1.VolumeProjection) bool { return p.ClusterTrustBundle != nil }

// anyLifecycle reports whether matches returns true for the lifecycle of any container.
func anyLifecycle(s *corev1.PodSpec, matches func(*corev1.Lifecycle) bool) (found bool) {
	eachContainer(s, func(_ string, _ int, c *corev1.Container) {
		found = found || c.Lifecycle != nil && matches(c.Lifecycle)
	})
	return found
}

// hasStopSignal reports whether a container sets its stop signal.
func hasStopSignal(l *corev1.Lifecycle) bool { return l.StopSignal != nil }

// hasSleep reports whether a hook of a container sleeps.
func hasSleep(l *corev1.Lifecycle) bool {
	return l.PreStop != nil && l.PreStop.Sleep != nil || l.PostStart != nil && l.PostStart.Sleep != nil
}

// dropSleep removes sleep actions, and hooks without any other action.
func dropSleep(l *corev1.Lifecycle) {
	for _, hook := range []**corev1.LifecycleHandler{&l.PreStop, &l.PostStart} {
		if *hook == nil || (*hook).Sleep == nil {
			continue
		}
		(*hook).Sleep = nil
		if **hook == (corev1.LifecycleHandler{}) {
			*hook = nil
		}
	}
}
