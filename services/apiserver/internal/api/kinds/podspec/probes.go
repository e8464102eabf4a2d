package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry/validate"
)

// lifecycleRules validates hooks and probes.
func (c *check) lifecycleRules(fldPath validate.Path, ctr *corev1.Container) {
	validate.Optional(fldPath, "lifecycle", ctr.Lifecycle, func(fldPath validate.Path, l *corev1.Lifecycle) {
		validate.Optional(fldPath, "postStart", l.PostStart, c.hookRules)
		validate.Optional(fldPath, "preStop", l.PreStop, c.hookRules)
		c.stopSignalRules(fldPath, l)
	})
	once := func(fldPath validate.Path, p *corev1.Probe) {
		probeRules(fldPath, p)
		if p.SuccessThreshold != 1 {
			fldPath.Invalid("successThreshold", p.SuccessThreshold, "must be 1")
		}
	}
	validate.Optional(fldPath, "livenessProbe", ctr.LivenessProbe, once)
	validate.Optional(fldPath, "readinessProbe", ctr.ReadinessProbe, func(fldPath validate.Path, p *corev1.Probe) {
		probeRules(fldPath, p)
		if p.TerminationGracePeriodSeconds != nil {
			fldPath.Invalid("terminationGracePeriodSeconds", *p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
		}
	})
	validate.Optional(fldPath, "startupProbe", ctr.StartupProbe, once)
}

func probeRules(fldPath validate.Path, p *corev1.Probe) {
	h := &p.ProbeHandler
	u := handlerRules(fldPath, h.Exec, h.HTTPGet, h.TCPSocket)
	validate.Member(u, "grpc", h.GRPC, func(fldPath validate.Path, g *corev1.GRPCAction) {
		fldPath.PortOrName("port", intstr.FromInt32(g.Port))
	})
	u.RequireMember(noHandler)
	fldPath.NonNegative("initialDelaySeconds", int64(p.InitialDelaySeconds))
	fldPath.NonNegative("timeoutSeconds", int64(p.TimeoutSeconds))
	fldPath.NonNegative("periodSeconds", int64(p.PeriodSeconds))
	fldPath.NonNegative("successThreshold", int64(p.SuccessThreshold))
	fldPath.NonNegative("failureThreshold", int64(p.FailureThreshold))
	if s := p.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		fldPath.Invalid("terminationGracePeriodSeconds", *s, "must be greater than 0")
	}
}

const noHandler = "must specify a handler type"

func (c *check) hookRules(fldPath validate.Path, h *corev1.LifecycleHandler) {
	u := handlerRules(fldPath, h.Exec, h.HTTPGet, h.TCPSocket)
	validate.Member(u, "sleep", h.Sleep, c.sleepRules)
	u.RequireMember(noHandler)
}

// handlerRules validates the handlers that hooks and probes share.
func handlerRules(fldPath validate.Path, exec *corev1.ExecAction, get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) *validate.Union {
	u := fldPath.Union("may not specify more than 1 handler type")
	validate.Member(u, "exec", exec, func(fldPath validate.Path, a *corev1.ExecAction) { fldPath.Present("command", len(a.Command) > 0) })
	validate.Member(u, "httpGet", get, func(fldPath validate.Path, a *corev1.HTTPGetAction) {
		fldPath.Present("path", a.Path != "")
		fldPath.PortOrName("port", a.Port)
		validate.OneOf(fldPath, "scheme", a.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for i := range a.HTTPHeaders {
			fldPath.Text("httpHeaders", a.HTTPHeaders[i].Name, validate.HTTPHeaderName)
		}
	})
	validate.Member(u, "tcpSocket", tcp, func(fldPath validate.Path, a *corev1.TCPSocketAction) { fldPath.PortOrName("port", a.Port) })
	return u
}

// sleepRules requires a sleep that ends before the pod is killed.
func (c *check) sleepRules(fldPath validate.Path, s *corev1.SleepAction) {
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
		fldPath.Invalid("", s.Seconds, detail)
	}
}

func hasZeroSleep(l *corev1.Lifecycle) bool {
	zero := func(h *corev1.LifecycleHandler) bool { return h != nil && h.Sleep != nil && h.Sleep.Seconds == 0 }
	return l != nil && (zero(l.PostStart) || zero(l.PreStop))
}

// stopSignalRules requires a signal that the pod's operating system supports.
func (c *check) stopSignalRules(fldPath validate.Path, l *corev1.Lifecycle) {
	if l.StopSignal == nil {
		return
	}
	if c.whole.OS == nil {
		fldPath.Forbidden("stopSignal", "may not be set for containers with empty `spec.os.name`")
		return
	}
	switch c.whole.OS.Name {
	case corev1.Windows:
		validate.OneOf(fldPath, "stopSignal", *l.StopSignal, corev1.SIGKILL, corev1.SIGTERM)
	case corev1.Linux:
		validate.OneOf(fldPath, "stopSignal", *l.StopSignal, linuxSignals()...)
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
