package audit

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Part of the server whose share of a slow request's time is told.
type Part uint8

// The parts.
const (
	Authentication Part = iota
	Authorization
	Queueing
	MutatingWebhook
	ValidatingWebhook
	Store
	Decoding
	Transforming
	Serializing
	Writing
	parts // how many there are
)

var partNames = [parts]string{
	"authentication", "authorization", "apf-queue-wait", "mutating-webhook", "validating-webhook", "etcd",
	"decode-response-object", "transform-response-object", "serialize-response-object", "response-write",
}

const (
	latencyPrefix = "apiserver.latency.k8s.io/"
	// slow is Config.Slow where nothing else is said.
	slow = 500 * time.Millisecond
)

// Timer is a part of the server at work. It is no function, which would be made anew for
// each request.
type Timer struct {
	record *Record
	part   Part
	begin  time.Time
}

// Track begins to time a part.
func (r *Record) Track(part Part) Timer {
	if r == nil {
		return Timer{}
	}
	return Timer{r, part, time.Now()}
}

// Done adds the time since to that of the part.
func (t Timer) Done() {
	if t.record != nil {
		t.record.Spent(t.part, time.Since(t.begin))
	}
}

// tellSpent annotates where the time of a slow request went. A watch is as long as its
// client likes, and not told.
func (r *Record) tellSpent() {
	p := r.lock()
	if p == nil {
		return
	}
	defer p.mu.Unlock()
	total := time.Since(p.event.Received)
	if total <= r.trail.Slow || p.event.Verb == "watch" {
		return
	}
	r.annotate(p, latencyPrefix+"total", total.String())
	for part, d := range p.spent {
		if d > 0 {
			r.annotate(p, latencyPrefix+partNames[part], d.String())
		}
	}
}

// failed notes a panic.
func (r *Record) failed(failure any) {
	r.change(func(p *page) {
		p.event.Status = &metav1.Status{
			Code: 500, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: fmt.Sprintf("APIServer panic'd: %v", failure),
		}
	})
}
