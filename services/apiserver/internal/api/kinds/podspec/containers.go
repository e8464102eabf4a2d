package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/declare"
)

// Defaults of probes; times are in seconds.
const (
	probeTimeout   = 1
	probePeriod    = 10
	probeSuccesses = 1
	probeFailures  = 3
)

func fillContainer(c *corev1.Container) {
	fillPullPolicy(&c.ImagePullPolicy, c.Image)
	declare.Fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	declare.Fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		declare.Fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			fillFieldRef(from.FieldRef)
		}
	}
	Round(c.Resources.Limits)
	Round(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		fillProbe(p)
	}
	if c.Lifecycle != nil {
		fillHook(c.Lifecycle.PostStart)
		fillHook(c.Lifecycle.PreStop)
	}
}

func fillFieldRef(r *corev1.ObjectFieldSelector) {
	if r != nil {
		declare.Fill(&r.APIVersion, "v1")
	}
}

func fillProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	declare.Fill(&p.TimeoutSeconds, probeTimeout)
	declare.Fill(&p.PeriodSeconds, probePeriod)
	declare.Fill(&p.SuccessThreshold, probeSuccesses)
	declare.Fill(&p.FailureThreshold, probeFailures)
	fillHTTP(p.HTTPGet)
	if p.GRPC != nil {
		declare.FillPtr(&p.GRPC.Service, "")
	}
}

func fillHook(h *corev1.LifecycleHandler) {
	if h != nil {
		fillHTTP(h.HTTPGet)
	}
}

func fillHTTP(a *corev1.HTTPGetAction) {
	if a != nil {
		declare.Fill(&a.Path, "/")
		declare.Fill(&a.Scheme, corev1.URISchemeHTTP)
	}
}
