package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry/validate"
)

// lifecycleRules validates hooks and probes.
func (c *check) lifecycleRules(at validate.At, ctr *corev1.Container) {
	validate.Optional(at, "lifecycle", ctr.Lifecycle, func(at validate.At, l *corev1.Lifecycle) {
		validate.Optional(at, "postStart", l.PostStart, c.hookRules)
		validate.Optional(at, "preStop", l.PreStop, c.hookRules)
		c.stopSignalRules(at, l)
	})
	once := func(at validate.At, p *corev1.Probe) {
		probeRules(at, p)
		if p.SuccessThreshold != 1 {
			at.Invalid("successThreshold", p.SuccessThreshold, "must be 1")
		}
	}
	validate.Optional(at, "livenessProbe", ctr.LivenessProbe, once)
	validate.Optional(at, "readinessProbe", ctr.ReadinessProbe, func(at validate.At, p *corev1.Probe) {
		probeRules(at, p)
		if p.TerminationGracePeriodSeconds != nil {
			at.Invalid("terminationGracePeriodSeconds", *p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
		}
	})
	validate.Optional(at, "startupProbe", ctr.StartupProbe, once)
}

func probeRules(at validate.At, p *corev1.Probe) {
	h := &p.ProbeHandler
	u := handlerRules(at, h.Exec, h.HTTPGet, h.TCPSocket)
	validate.Member(u, "grpc", h.GRPC, func(at validate.At, g *corev1.GRPCAction) { at.PortOrName("port", intstr.FromInt32(g.Port)) })
	u.Some(noHandler)
	at.NonNegative("initialDelaySeconds", int64(p.InitialDelaySeconds))
	at.NonNegative("timeoutSeconds", int64(p.TimeoutSeconds))
	at.NonNegative("periodSeconds", int64(p.PeriodSeconds))
	at.NonNegative("successThreshold", int64(p.SuccessThreshold))
	at.NonNegative("failureThreshold", int64(p.FailureThreshold))
	if s := p.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		at.Invalid("terminationGracePeriodSeconds", *s, "must be greater than 0")
	}
}

const noHandler = "must specify a handler type"

func (c *check) hookRules(at validate.At, h *corev1.LifecycleHandler) {
	u := handlerRules(at, h.Exec, h.HTTPGet, h.TCPSocket)
	validate.Member(u, "sleep", h.Sleep, c.sleepRules)
	u.Some(noHandler)
}

// handlerRules validates the handlers that hooks and probes share.
func handlerRules(at validate.At, exec *corev1.ExecAction, get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) *validate.Union {
	u := at.Choice("may not specify more than 1 handler type")
	validate.Member(u, "exec", exec, func(at validate.At, a *corev1.ExecAction) { at.Present("command", len(a.Command) > 0) })
	validate.Member(u, "httpGet", get, func(at validate.At, a *corev1.HTTPGetAction) {
		at.Present("path", a.Path != "")
		at.PortOrName("port", a.Port)
		validate.OneOf(at, "scheme", a.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for i := range a.HTTPHeaders {
			at.Text("httpHeaders", a.HTTPHeaders[i].Name, validate.HTTPHeaderName)
		}
	})
	validate.Member(u, "tcpSocket", tcp, func(at validate.At, a *corev1.TCPSocketAction) { at.PortOrName("port", a.Port) })
	return u
}

// sleepRules requires a sleep that ends before the pod is killed.
func (c *check) sleepRules(at validate.At, s *corev1.SleepAction) {
	grace := c.whole.TerminationGracePeriodSeconds
	if grace == nil {
		return
	}
	least := int64(0)
	detail := fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace)
	if !c.zeroSleep && !c.kept.zeroSleep {
		least = 1
		detail = fmt.Sprintf("must be greater than 0 and less than terminationGracePeriodSeconds (%d)."+
			" Enable AllowPodLifecycleSleepActionZeroValue feature gate for zero sleep.", *grace)
	}
	if s.Seconds < least || s.Seconds > *grace {
		at.Invalid("", s.Seconds, detail)
	}
}

func hasZeroSleep(l *corev1.Lifecycle) bool {
	zero := func(h *corev1.LifecycleHandler) bool { return h != nil && h.Sleep != nil && h.Sleep.Seconds == 0 }
	return l != nil && (zero(l.PostStart) || zero(l.PreStop))
}

// stopSignalRules requires a signal that the pod's operating system supports.
func (c *check) stopSignalRules(at validate.At, l *corev1.Lifecycle) {
	if l.StopSignal == nil {
		return
	}
	if c.whole.OS == nil {
		at.Forbidden("stopSignal", "may not be set for containers with empty `spec.os.name`")
		return
	}
	switch c.whole.OS.Name {
	case corev1.Windows:
		validate.OneOf(at, "stopSignal", *l.StopSignal, corev1.SIGKILL, corev1.SIGTERM)
	case corev1.Linux:
		validate.OneOf(at, "stopSignal", *l.StopSignal, linuxSignals()...)
	}
}

// linuxSignals returns the names of signals, sorted (signal(7)).
func linuxSignals() []corev1.Signal {
	all := []corev1.Signal{
		corev1.SIGABRT, corev1.SIGALRM, corev1.SIGBUS, corev1.SIGCHLD, corev1.SIGCLD, corev1.SIGCONT, corev1.SIGFPE,
		corev1.SIGHUP, corev1.SIGILL, corev1.SIGINT, corev1.SIGIO, corev1.SIGIOT, corev1.SIGKILL, corev1.SIGPIPE,
		corev1.SIGPOLL, corev1.SIGPROF, corev1.SIGPWR, corev1.SIGQUIT, corev1.SIGSEGV, corev1.SIGSTKFLT, corev1.SIGSTOP,
		corev1.SIGSYS, corev1.SIGTERM, corev1.SIGTRAP, corev1.SIGTSTP, corev1.SIGTTIN, corev1.SIGTTOU, corev1.SIGURG,
		corev1.SIGUSR1, corev1.SIGUSR2, corev1.SIGVTALRM, corev1.SIGWINCH, corev1.SIGXCPU, corev1.SIGXFSZ,
		corev1.SIGRTMIN, corev1.SIGRTMAX,
	}
	for n := 1; n <= 15; n++ {
		all = append(all, corev1.Signal(fmt.Sprintf("%s+%d", corev1.SIGRTMIN, n)))
	}
	for n := 1; n <= 14; n++ {
		all = append(all, corev1.Signal(fmt.Sprintf("%s-%d", corev1.SIGRTMAX, n)))
	}
	slices.Sort(all)
	return all
}
