package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry/validate"
)

// validateLifecycle validates hooks and probes.
func (c *check) validateLifecycle(fld validate.Field, ctr *corev1.Container) {
	validate.Optional(fld, "lifecycle", ctr.Lifecycle, func(fld validate.Field, l *corev1.Lifecycle) {
		validate.Optional(fld, "postStart", l.PostStart, c.validateLifecycleHandler)
		validate.Optional(fld, "preStop", l.PreStop, c.validateLifecycleHandler)
		c.validateStopSignal(fld, l)
	})
	validateSingleSuccessProbe := func(fld validate.Field, p *corev1.Probe) {
		validateProbe(fld, p)
		if p.SuccessThreshold != 1 {
			fld.Invalid("successThreshold", p.SuccessThreshold, "must be 1")
		}
	}
	validate.Optional(fld, "livenessProbe", ctr.LivenessProbe, validateSingleSuccessProbe)
	validate.Optional(fld, "readinessProbe", ctr.ReadinessProbe, func(fld validate.Field, p *corev1.Probe) {
		validateProbe(fld, p)
		if p.TerminationGracePeriodSeconds != nil {
			fld.Invalid("terminationGracePeriodSeconds", *p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
		}
	})
	validate.Optional(fld, "startupProbe", ctr.StartupProbe, validateSingleSuccessProbe)
}

func validateProbe(fld validate.Field, probe *corev1.Probe) {
	h := &probe.ProbeHandler
	union := validateHandler(fld, h.Exec, h.HTTPGet, h.TCPSocket)
	validate.Member(union, "grpc", h.GRPC, func(fld validate.Field, g *corev1.GRPCAction) {
		fld.CheckPortOrName("port", intstr.FromInt32(g.Port))
	})
	union.RequireMember(noHandlerDetail)
	fld.CheckNonNegative("initialDelaySeconds", int64(probe.InitialDelaySeconds))
	fld.CheckNonNegative("timeoutSeconds", int64(probe.TimeoutSeconds))
	fld.CheckNonNegative("periodSeconds", int64(probe.PeriodSeconds))
	fld.CheckNonNegative("successThreshold", int64(probe.SuccessThreshold))
	fld.CheckNonNegative("failureThreshold", int64(probe.FailureThreshold))
	if s := probe.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		fld.Invalid("terminationGracePeriodSeconds", *s, "must be greater than 0")
	}
}

const noHandlerDetail = "must specify a handler type"

func (c *check) validateLifecycleHandler(fld validate.Field, h *corev1.LifecycleHandler) {
	u := validateHandler(fld, h.Exec, h.HTTPGet, h.TCPSocket)
	validate.Member(u, "sleep", h.Sleep, c.validateSleep)
	u.RequireMember(noHandlerDetail)
}

// validateHandler validates the handlers that hooks and probes share.
func validateHandler(
	fld validate.Field,
	exec *corev1.ExecAction,
	get *corev1.HTTPGetAction,
	tcp *corev1.TCPSocketAction,
) *validate.Union {
	union := fld.Union("may not specify more than 1 handler type")
	validate.Member(
		union,
		"exec",
		exec,
		func(fld validate.Field, httpGet *corev1.ExecAction) {
			fld.RequireSet("command", len(httpGet.Command) > 0)
		},
	)
	validate.Member(union, "httpGet", get, func(fld validate.Field, httpGet *corev1.HTTPGetAction) {
		fld.RequireSet("path", httpGet.Path != "")
		fld.CheckPortOrName("port", httpGet.Port)
		validate.OneOf(fld, "scheme", httpGet.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for i := range httpGet.HTTPHeaders {
			fld.CheckText("httpHeaders", httpGet.HTTPHeaders[i].Name, validate.HTTPHeaderName)
		}
	})
	validate.Member(
		union,
		"tcpSocket",
		tcp,
		func(fld validate.Field, httpGet *corev1.TCPSocketAction) {
			fld.CheckPortOrName("port", httpGet.Port)
		},
	)
	return union
}

// validateSleep requires a sleep that ends before the pod is killed.
func (c *check) validateSleep(fld validate.Field, sleepAction *corev1.SleepAction) {
	grace := c.spec.TerminationGracePeriodSeconds
	if grace == nil {
		return
	}
	minSeconds := int64(0)
	detail := fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace)
	if !c.zeroSleep && !c.prior.zeroSleep {
		minSeconds = 1
		detail = fmt.Sprintf("must be greater than 0 and less than terminationGracePeriodSeconds (%d)."+
			" Enable AllowPodLifecycleSleepActionZeroValue feature gate for zero sleep.", *grace)
	}
	if sleepAction.Seconds < minSeconds || sleepAction.Seconds > *grace {
		fld.Invalid("", sleepAction.Seconds, detail)
	}
}

func hasZeroSleep(l *corev1.Lifecycle) bool {
	zero := func(h *corev1.LifecycleHandler) bool { return h != nil && h.Sleep != nil && h.Sleep.Seconds == 0 }
	return l != nil && (zero(l.PostStart) || zero(l.PreStop))
}

// validateStopSignal requires a signal that the pod's operating system supports.
func (c *check) validateStopSignal(fld validate.Field, lifecycle *corev1.Lifecycle) {
	if lifecycle.StopSignal == nil {
		return
	}
	if c.spec.OS == nil {
		fld.Forbidden("stopSignal", "may not be set for containers with empty `spec.os.name`")
		return
	}
	switch c.spec.OS.Name {
	case corev1.Windows:
		validate.OneOf(fld, "stopSignal", *lifecycle.StopSignal, corev1.SIGKILL, corev1.SIGTERM)
	case corev1.Linux:
		validate.OneOf(fld, "stopSignal", *lifecycle.StopSignal, linuxSignals()...)
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
