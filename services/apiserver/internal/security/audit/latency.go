package audit

import "time"

// Phase is a phase of a request. Slow requests are annotated with the time that each phase took.
type Phase uint8

// The phases.
const (
	Authentication Phase = iota
	Authorization
	Queueing
	MutatingWebhook
	ValidatingWebhook
	Store
	Decoding
	Transforming
	Serializing
	Writing
	phaseCount // the number of phases
)

var phaseNames = [phaseCount]string{
	"authentication", "authorization", "apf-queue-wait", "mutating-webhook", "validating-webhook", "etcd",
	"decode-response-object", "transform-response-object", "serialize-response-object", "response-write",
}

const (
	latencyPrefix = "apiserver.latency.k8s.io/"
	// defaultSlow is the default of Config.Slow.
	defaultSlow = 500 * time.Millisecond
)

// LatencyTimer measures the time of a phase. It is a struct because a closure would be allocated
// for each request.
type LatencyTimer struct {
	record *Record
	phase  Phase
	start  time.Time
}

// StartTimer starts a timer for a phase.
func (r *Record) StartTimer(phase Phase) LatencyTimer {
	if r == nil {
		return LatencyTimer{}
	}
	return LatencyTimer{r, phase, time.Now()}
}

// Stop adds the time since StartTimer to the phase.
func (t LatencyTimer) Stop() {
	if t.record != nil {
		t.record.AddDuration(t.phase, time.Since(t.start))
	}
}

// annotateLatency adds latency annotations to a slow request. A watch has none, because its client
// chooses its duration.
func (r *Record) annotateLatency() {
	state := r.lockState()
	if state == nil {
		return
	}
	defer state.mu.Unlock()
	total := time.Since(state.event.Received)
	if total <= r.auditor.Slow || state.event.Verb == "watch" {
		return
	}
	r.annotate(state, latencyPrefix+"total", total.String())
	for phase, d := range state.spent {
		if d > 0 {
			r.annotate(state, latencyPrefix+phaseNames[phase], d.String())
		}
	}
}
