package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Drop clears the fields of disabled gates, unless the stored object has them.
func (r *Rules) Drop(s, old *corev1.PodSpec) {
	if !r.podResources && (old == nil || old.Resources == nil) {
		s.Resources = nil
	}
	if !r.resourceClaims && (old == nil || len(old.ResourceClaims) == 0) {
		s.ResourceClaims = nil
		eachContainer(s, func(_ string, _ int, c *corev1.Container) { c.Resources.Claims = nil })
	}
	if !r.imageVolumes && (old == nil || !slices.ContainsFunc(old.Volumes, isImage)) {
		dropImages(s)
	}
	if !r.trustBundles && (old == nil || !anySource(old, hasTrustBundle)) {
		anySource(s, func(p *corev1.VolumeProjection) bool { p.ClusterTrustBundle = nil; return false })
	}
	if !r.stopSignals && (old == nil || !anyLifecycle(old, hasStopSignal)) {
		anyLifecycle(s, func(l *corev1.Lifecycle) bool { l.StopSignal = nil; return false })
	}
	if !r.sleeps && (old == nil || !anyLifecycle(old, hasSleep)) {
		anyLifecycle(s, func(l *corev1.Lifecycle) bool { dropSleep(l); return false })
	}
	if !r.inPlaceResize && (old == nil || !hasResizePolicy(old)) {
		eachContainer(s, func(_ string, _ int, c *corev1.Container) { c.ResizePolicy = nil })
	}
}

// hasResizePolicy ignores ephemeral containers.
func hasResizePolicy(s *corev1.PodSpec) bool {
	has := func(c corev1.Container) bool { return len(c.ResizePolicy) > 0 }
	return slices.ContainsFunc(s.Containers, has) || slices.ContainsFunc(s.InitContainers, has)
}

// DropTemplate is Drop for a template.
func (r *Rules) DropTemplate(t, old *corev1.PodTemplateSpec) {
	if old == nil {
		r.Drop(&t.Spec, nil)
		return
	}
	r.Drop(&t.Spec, &old.Spec)
}

// DropStatus is Drop for the status of a pod.
func (r *Rules) DropStatus(p, old *corev1.Pod) {
	s := &p.Status
	if !r.resourceClaims && len(old.Spec.ResourceClaims) == 0 {
		s.ResourceClaimStatuses = nil
	}
	if !r.observedGeneration && old.Status.ObservedGeneration == 0 {
		s.ObservedGeneration = 0
		for i := range s.Conditions {
			s.Conditions[i].ObservedGeneration = 0
		}
	}
	for i, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		before := [][]corev1.ContainerStatus{old.Status.ContainerStatuses, old.Status.InitContainerStatuses, old.Status.EphemeralContainerStatuses}[i]
		for j := range list {
			if !r.inPlaceResize && !hasResizePolicy(&old.Spec) {
				list[j].Resources, list[j].AllocatedResources = nil, nil
			}
			if !r.resourceHealth && !slices.ContainsFunc(before, func(c corev1.ContainerStatus) bool { return c.AllocatedResourcesStatus != nil }) {
				list[j].AllocatedResourcesStatus = nil
			}
		}
	}
}

func isImage(v corev1.Volume) bool { return v.Image != nil }

// dropImages removes image volumes and their mounts.
func dropImages(s *corev1.PodSpec) {
	names := map[string]bool{}
	for i := range s.Volumes {
		if isImage(s.Volumes[i]) {
			names[s.Volumes[i].Name] = true
		}
	}
	if len(names) == 0 {
		return
	}
	s.Volumes = slices.DeleteFunc(s.Volumes, isImage)
	eachContainer(s, func(_ string, _ int, c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return names[m.Name] })
	})
}

// anySource reports whether ask returns true for any source of projected volumes.
func anySource(s *corev1.PodSpec, ask func(*corev1.VolumeProjection) bool) bool {
	for i := range s.Volumes {
		if p := s.Volumes[i].Projected; p != nil {
			for j := range p.Sources {
				if ask(&p.Sources[j]) {
					return true
				}
			}
		}
	}
	return false
}

func hasTrustBundle(p *corev1.VolumeProjection) bool { return p.ClusterTrustBundle != nil }

// anyLifecycle reports whether ask returns true for the lifecycle of any container.
func anyLifecycle(s *corev1.PodSpec, ask func(*corev1.Lifecycle) bool) bool {
	yes := false
	eachContainer(s, func(_ string, _ int, c *corev1.Container) {
		yes = yes || c.Lifecycle != nil && ask(c.Lifecycle)
	})
	return yes
}

func hasStopSignal(l *corev1.Lifecycle) bool { return l.StopSignal != nil }

func hasSleep(l *corev1.Lifecycle) bool {
	return l.PreStop != nil && l.PreStop.Sleep != nil || l.PostStart != nil && l.PostStart.Sleep != nil
}

// dropSleep removes sleep actions, and hooks without any other action.
func dropSleep(l *corev1.Lifecycle) {
	for _, h := range []**corev1.LifecycleHandler{&l.PreStop, &l.PostStart} {
		if *h == nil || (*h).Sleep == nil {
			continue
		}
		(*h).Sleep = nil
		if **h == (corev1.LifecycleHandler{}) {
			*h = nil
		}
	}
}
