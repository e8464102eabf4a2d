package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/request"
)

// Record collects the audit data of a request. A nil Record ignores all calls. Its methods may be
// called concurrently. After the end of the record they do nothing.
type Record struct {
	auditor           *Auditor
	principal         string // the budget counts its objects under this key
	level             Level
	omit              StageSet
	omitManagedFields bool // remove managedFields from objects

	state      *recordState
	generation uint64 // of state
}

// recordState is the pooled state of a record. Its generation increases at the end of each record,
// so that calls on an ended record can be recognized.
type recordState struct {
	mu         sync.Mutex // leaf lock, except for the sinks
	generation uint64
	recordData
}

// recordData is the data of the current record.
type recordData struct {
	event       Event
	longRunning bool
	started     bool  // BeginResponse was called
	closing     bool  // the last event is being emitted, so the data must not change
	heldBytes   int64 // bytes of the auditor's budget
	spent       [phaseCount]time.Duration

	// Storage for the referenced values of most events.
	object      Reference
	status      metav1.Status
	sources     [1]string
	annotations [4]Annotation
}

// lockState locks and returns the state of the record. It returns nil if the record is nil or has
// ended.
func (r *Record) lockState() *recordState {
	if r == nil {
		return nil
	}
	state := r.state
	state.mu.Lock()
	if state.generation != r.generation {
		state.mu.Unlock()
		return nil
	}
	return state
}

// update calls write with the locked state, unless the record has ended.
func (r *Record) update(write func(state *recordState)) {
	if state := r.lockState(); state != nil {
		defer state.mu.Unlock()
		write(state)
	}
}

// FromContext returns the record of a request, or nil.
func FromContext(ctx context.Context) *Record {
	r, _ := request.FromContext(ctx).AuditEvent.(*Record)
	return r
}

// Enabled reports whether data of a level is recorded.
func (r *Record) Enabled(l Level) bool { return r != nil && r.level >= l }

// Annotate adds an annotation. The first value of a key wins.
func (r *Record) Annotate(key, value string) {
	r.update(func(state *recordState) { r.annotate(state, key, value) })
}

// AnnotateAll adds several annotations.
func (r *Record) AnnotateAll(annotations map[string]string) {
	r.update(func(state *recordState) {
		for k, v := range annotations {
			r.annotate(state, k, v)
		}
	})
}

// maxAnnotations is the maximum total size in bytes of the annotations of one event.
const maxAnnotations = 1 << 20

// annotate is Annotate on a locked state.
func (r *Record) annotate(state *recordState, key, value string) {
	if state.closing {
		return
	}
	size := len(key) + len(value)
	for i := range state.event.Annotations {
		existing := &state.event.Annotations[i]
		if existing.Key == key {
			if existing.Value != value && r.auditor.Logger != nil {
				r.auditor.Logger.Debug("ignored second value of an audit annotation", "key", key)
			}
			return
		}
		size += len(existing.Key) + len(existing.Value)
	}
	if size > maxAnnotations {
		key, value = Truncated, "true"
		if state.event.Annotations.indexOf(key) >= 0 {
			return
		}
	}
	if state.event.Annotations == nil {
		state.event.Annotations = state.annotations[:0]
	}
	state.event.Annotations = append(state.event.Annotations, Annotation{key, value})
}

// Impersonate records the impersonated user.
func (r *Record) Impersonate(user *request.User) {
	r.update(func(state *recordState) {
		if !state.closing {
			state.event.Impersonated = user
		}
	})
}

// SetRequestInfo records whether the request is long-running after its request info was resolved
// again.
func (r *Record) SetRequestInfo(info *requestinfo.Info) {
	r.update(func(state *recordState) { state.longRunning = info.LongRunning() })
}

// AddDuration adds a duration to the time of a phase.
func (r *Record) AddDuration(phase Phase, d time.Duration) {
	r.update(func(state *recordState) { state.spent[phase] += max(d, 0) })
}

// SetRequestObject records the object of the request and its name. encode returns its JSON and is
// called only from level Request on.
func (r *Record) SetRequestObject(obj metav1.Object, encode func() ([]byte, error)) {
	if obj != nil {
		r.fillReference(obj)
	}
	r.SetRequestText(encode)
}

// SetRequestText records a request body that is no object, such as a patch. encode returns its
// JSON.
func (r *Record) SetRequestText(encode func() ([]byte, error)) {
	if !r.Enabled(Request) {
		return
	}
	text, err := encode()
	if err != nil {
		return
	}
	r.storeObject(text, func(state *recordState, retained []byte) {
		if state.event.RequestObject == nil {
			state.event.RequestObject = retained
		}
	})
}

// fillReference sets the fields of the object reference that the path did not contain.
func (r *Record) fillReference(obj metav1.Object) {
	r.update(func(state *recordState) {
		if state.event.Object == nil || state.closing {
			return
		}
		ref := *state.event.Object
		ref.Namespace = cmp.Or(ref.Namespace, obj.GetNamespace())
		ref.Name = cmp.Or(ref.Name, obj.GetName())
		ref.UID = cmp.Or(ref.UID, string(obj.GetUID()))
		ref.ResourceVersion = cmp.Or(ref.ResourceVersion, obj.GetResourceVersion())
		state.event.Object = &ref
	})
}

// SetResponseStatus records the Status of the response.
func (r *Record) SetResponseStatus(status *metav1.Status) {
	r.update(func(state *recordState) {
		if state.closing {
			return
		}
		if r.level < RequestResponse {
			status = redactObject(status)
		}
		state.event.Status = &metav1.Status{
			Status:  status.Status,
			Message: status.Message,
			Reason:  status.Reason,
			Details: status.Details,
			Code:    status.Code,
		}
	})
}

// SetResponseObject records the JSON of the response object. It copies text.
func (r *Record) SetResponseObject(text []byte) {
	if !r.Enabled(RequestResponse) {
		return
	}
	r.storeObject(text, func(state *recordState, retained []byte) { state.event.ResponseObject = retained })
}

// storeObject compacts the text of an object and passes it to set. If the object exceeds the
// limits, it passes nil and adds the annotation Truncated.
func (r *Record) storeObject(text []byte, set func(state *recordState, stored []byte)) {
	WithPermit(r.auditor.Limiter, len(text), func() {
		text = bytes.TrimSpace(text)
		if r.omitManagedFields && len(text) > 0 {
			text = withoutManagedFields(text)
		}
		size := int64(len(text) + escapeGrowth(text))
		fits := size <= r.auditor.MaxObject && r.auditor.budget.tryAcquire(r.principal, size)
		var stored []byte
		if fits {
			stored = compactJSON(bytes.Clone(text))
		}
		state := r.lockState()
		if state != nil {
			defer state.mu.Unlock()
		}
		if state == nil || state.closing {
			if fits {
				r.auditor.budget.release(r.principal, size)
			}
			return
		}
		set(state, stored)
		if fits {
			state.heldBytes += size
		} else {
			r.annotate(state, Truncated, "true")
		}
	})
}

// compactJSON returns a text in the form of encoding/json, or nil for invalid JSON. It returns text
// itself if it has that form.
func compactJSON(text []byte) []byte {
	if jsontext.Compact(text) {
		return text
	}
	out, err := json.Marshal(json.RawMessage(text))
	if err != nil || len(text) == 0 {
		return nil
	}
	return out
}

// escapedCharacters holds the characters that encoding/json escapes.
const escapedCharacters = "<>&\u2028\u2029"

// escapeGrowth returns the maximum number of bytes by which escaping lengthens a text.
func escapeGrowth(text []byte) (n int) {
	for _, c := range escapedCharacters {
		n += bytes.Count(text, []byte(string(c))) * (len(`\u0000`) - utf8.RuneLen(c))
	}
	return n
}

// BeginResponse records the code of the response, which starts now. For long-running requests it
// emits the ResponseStarted event.
func (r *Record) BeginResponse(ctx context.Context, code int) {
	state := r.lockState()
	if state == nil {
		return
	}
	if state.started || state.closing {
		state.mu.Unlock()
		return
	}
	state.started = true
	state.setCode(code)
	longRunning := state.longRunning
	state.mu.Unlock()
	if longRunning {
		_ = r.emit(ctx, ResponseStarted) // too late to reject the request
	}
}

// setCode sets the code of the response. The caller holds mu.
func (state *recordState) setCode(code int) {
	if state.event.Status == nil {
		state.status.Code = int32(code)
		state.event.Status = &state.status
		return
	}
	st := *state.event.Status
	st.Code = int32(code)
	state.event.Status = &st
}

// End emits the last event of the request and ends the record. failure is the value with which
// the handler panicked, or nil.
func (r *Record) End(ctx context.Context, failure any) {
	state := r.lockState()
	if state == nil {
		return
	}
	longRunning, started := state.longRunning, state.started
	switch {
	case failure != nil:
		state.event.Status = &metav1.Status{
			Code:    500,
			Status:  metav1.StatusFailure,
			Reason:  metav1.StatusReasonInternalError,
			Message: fmt.Sprintf("APIServer panic'd: %v", failure),
		}
	case state.event.Status == nil:
		state.event.Status = &metav1.Status{Code: 200, Status: metav1.StatusSuccess, Message: "Connection closed early"}
	}
	state.mu.Unlock()
	last := Panic
	if failure == nil {
		last = ResponseComplete
		if longRunning && !started {
			_ = r.emit(ctx, ResponseStarted) // too late to reject the request
		}
		r.annotateLatency()
	}
	r.update(func(state *recordState) { state.closing = true })
	_ = r.emit(ctx, last) // the request is done and cannot be rejected
	r.close()
}

// close ends the record and releases its bytes.
func (r *Record) close() {
	state := r.lockState()
	if state == nil {
		return
	}
	r.auditor.budget.release(r.principal, state.heldBytes)
	state.generation++
	state.recordData = recordData{}
	state.mu.Unlock()
	r.auditor.states.Put(state)
}

// emit emits the event of a stage and returns the errors of sinks. Only ResponseStarted needs a
// snapshot: at the other stages no other goroutine changes the event. The record must not be
// closed.
func (r *Record) emit(ctx context.Context, stage Stage) error {
	if r.omit.Has(stage) {
		return nil
	}
	event := &r.state.event
	if stage == ResponseStarted {
		state := r.lockState()
		if state == nil {
			return nil
		}
		event = new(state.event)
		if event.Object == &state.object {
			event.Object = new(state.object)
		}
		if event.Status == &state.status {
			event.Status = new(state.status)
		}
		// Later calls on the record may append to these lists.
		event.Annotations = slices.Clone(event.Annotations)
		event.SourceIPs = slices.Clone(event.SourceIPs)
		state.mu.Unlock()
	}
	event.Stage = stage
	if stage == RequestReceived {
		event.Staged = event.Received
	} else {
		event.Staged = time.Now()
	}
	return r.auditor.emitToSinks(ctx, event)
}
