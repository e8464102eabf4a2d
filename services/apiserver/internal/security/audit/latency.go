package audit

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase is a part of the server whose share of a slow request's time is annotated.
type Phase uint8

// The parts.
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
	parts // the number of parts
)

var partNames = [parts]string{
	"authentication", "authorization", "apf-queue-wait", "mutating-webhook", "validating-webhook", "etcd",
	"decode-response-object", "transform-response-object", "serialize-response-object", "response-write",
}

const (
	latencyPrefix = "apiserver.latency.k8s.io/"
	// defaultSlow is the default of Config.Slow.
	defaultSlow = 500 * time.Millisecond
)

// Timer measures the time of a part. It is a struct because a closure would be allocated for each
// request.
type Timer struct {
	record *Record
	part   Phase
	begin  time.Time
}

// Track starts a timer for a part.
func (r *Record) Track(part Phase) Timer {
	if r == nil {
		return Timer{}
	}
	return Timer{r, part, time.Now()}
}

// Done adds the time since Track to the part.
func (t Timer) Done() {
	if t.record != nil {
		t.record.Spent(t.part, time.Since(t.begin))
	}
}

// annotateLatency adds latency annotations to a slow request. The duration of a watch is the
// client's choice, so it has none.
func (r *Record) annotateLatency() {
	p := r.lock()
	if p == nil {
		return
	}
	defer p.mu.Unlock()
	total := time.Since(p.event.Received)
	if total <= r.auditor.Slow || p.event.Verb == "watch" {
		return
	}
	r.annotate(p, latencyPrefix+"total", total.String())
	for part, d := range p.spent {
		if d > 0 {
			r.annotate(p, latencyPrefix+partNames[part], d.String())
		}
	}
}

// setPanic sets the response status of a panic.
func (r *Record) setPanic(failure any) {
	r.update(func(p *recordState) {
		p.event.Status = &metav1.Status{
			Code: 500, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: fmt.Sprintf("APIServer panic'd: %v", failure),
		}
	})
}
