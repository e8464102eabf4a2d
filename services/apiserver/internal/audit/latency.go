package audit

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Parts of the server whose share of a slow request's time is told.
const (
	Authentication    = "authentication"
	Authorization     = "authorization"
	Queueing          = "apf-queue-wait"
	MutatingWebhook   = "mutating-webhook"
	ValidatingWebhook = "validating-webhook"
	Store             = "etcd"
	Decoding          = "decode-response-object"
	Transforming      = "transform-response-object"
	Serializing       = "serialize-response-object"
	Writing           = "response-write"
)

const (
	latencyPrefix = "apiserver.latency.k8s.io/"
	// slow is Config.Slow where nothing else is said.
	slow = 500 * time.Millisecond
)

// Track returns what adds the time since to that of a part.
func (r *Record) Track(part string) (done func()) {
	if r == nil {
		return nothing
	}
	begin := time.Now()
	return func() { r.Spent(part, time.Since(begin)) }
}

func nothing() {}

// tellSpent annotates where the time of a slow request went. A watch is as long as its
// client likes, and not told.
func (r *Record) tellSpent() {
	total := time.Since(r.received)
	if total <= r.trail.Slow || r.event.Verb == "watch" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.annotate(latencyPrefix+"total", total.String())
	for part, d := range r.spent {
		r.annotate(latencyPrefix+part, d.String())
	}
}

// failed notes a panic.
func (r *Record) failed(failure any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.Status = &metav1.Status{
		Code: 500, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: fmt.Sprintf("APIServer panic'd: %v", failure),
	}
}
