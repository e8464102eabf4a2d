package audit

import (
	"bytes"
	"context"
	"encoding/json"
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
	final       bool  // the last event is being emitted, so the data must not change
	heldBytes   int64 // bytes of the auditor's budget
	spent       [parts]time.Duration

	// Storage for the referenced values of most events.
	object      Reference
	status      metav1.Status
	sources     [1]string
	annotations [4]Annotation
}

// lock locks and returns the state of the record. It returns nil if the record has ended.
func (r *Record) lock() *recordState {
	p := r.state
	p.mu.Lock()
	if p.generation != r.generation {
		p.mu.Unlock()
		return nil
	}
	return p
}

// update calls write with the locked state, unless the record has ended.
func (r *Record) update(write func(p *recordState)) {
	if p := r.lock(); p != nil {
		defer p.mu.Unlock()
		write(p)
	}
}

// From returns the record of a request, or nil.
func From(ctx context.Context) *Record {
	r, _ := request.From(ctx).AuditEvent.(*Record)
	return r
}

// Wants reports whether data of a level is recorded.
func (r *Record) Wants(l Level) bool { return r != nil && r.level >= l }

// Annotate adds an annotation. The first value of a key wins.
func (r *Record) Annotate(key, value string) {
	if r == nil {
		return
	}
	if p := r.lock(); p != nil {
		defer p.mu.Unlock()
		r.annotate(p, key, value)
	}
}

// AnnotateAll adds several annotations.
func (r *Record) AnnotateAll(annotations map[string]string) {
	if r == nil || len(annotations) == 0 {
		return
	}
	if p := r.lock(); p != nil {
		defer p.mu.Unlock()
		for k, v := range annotations {
			r.annotate(p, k, v)
		}
	}
}

// maxAnnotations is the maximum total size in bytes of the annotations of one event.
const maxAnnotations = 1 << 20

// annotate is Annotate on a locked state.
func (r *Record) annotate(p *recordState, key, value string) {
	if p.final {
		return
	}
	size := len(key) + len(value)
	for i := range p.event.Annotations {
		existing := &p.event.Annotations[i]
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
		if p.event.Annotations.index(key) >= 0 {
			return
		}
	}
	if p.event.Annotations == nil {
		p.event.Annotations = p.annotations[:0]
	}
	p.event.Annotations = append(p.event.Annotations, Annotation{key, value})
}

// Impersonate records the impersonated user.
func (r *Record) Impersonate(u *request.User) {
	if r == nil {
		return
	}
	r.update(func(p *recordState) {
		if !p.final {
			p.event.Impersonated = u
		}
	})
}

// SetRequestInfo records whether the request is long-running after its request info was resolved
// again.
func (r *Record) SetRequestInfo(op *requestinfo.Info) {
	if r == nil {
		return
	}
	r.update(func(p *recordState) { p.longRunning = op.LongRunning() })
}

// Spent adds to the time of a part of the server.
func (r *Record) Spent(part Phase, d time.Duration) {
	if r == nil || d <= 0 {
		return
	}
	if p := r.lock(); p != nil {
		p.spent[part] += d
		p.mu.Unlock()
	}
}

// SetRequestObject records the object of the request and its name. encode returns its JSON and is
// called only from level Request on.
func (r *Record) SetRequestObject(obj metav1.Object, encode func() ([]byte, error)) {
	if r == nil {
		return
	}
	if obj != nil {
		r.fillReference(obj)
	}
	r.SetRequestText(encode)
}

// SetRequestText records a request body that is no object, such as a patch. encode returns its
// JSON.
func (r *Record) SetRequestText(encode func() ([]byte, error)) {
	if !r.Wants(Request) {
		return
	}
	text, err := encode()
	if err != nil {
		return
	}
	r.storeObject(text, func(p *recordState, kept []byte) {
		if p.event.RequestObject == nil {
			p.event.RequestObject = kept
		}
	})
}

// fillReference sets the fields of the object reference that the path did not contain.
func (r *Record) fillReference(obj metav1.Object) {
	p := r.lock()
	if p == nil {
		return
	}
	defer p.mu.Unlock()
	if p.event.Object == nil || p.final {
		return
	}
	ref := *p.event.Object
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&ref.Namespace, obj.GetNamespace())
	fill(&ref.Name, obj.GetName())
	fill(&ref.UID, string(obj.GetUID()))
	fill(&ref.ResourceVersion, obj.GetResourceVersion())
	p.event.Object = &ref
}

// SetResponseStatus records the Status of the response.
func (r *Record) SetResponseStatus(st *metav1.Status) {
	if r == nil {
		return
	}
	p := r.lock()
	if p == nil {
		return
	}
	defer p.mu.Unlock()
	if p.final {
		return
	}
	if r.level < RequestResponse {
		st = redactObject(st)
	}
	p.event.Status = &metav1.Status{
		Status:  st.Status,
		Message: st.Message,
		Reason:  st.Reason,
		Details: st.Details,
		Code:    st.Code,
	}
}

// SetResponseObject records the JSON of the response object. It copies text.
func (r *Record) SetResponseObject(text []byte) {
	if !r.Wants(RequestResponse) {
		return
	}
	r.storeObject(text, func(p *recordState, kept []byte) { p.event.ResponseObject = kept })
}

// storeObject compacts the text of an object and passes it to set. It passes nil, and adds the
// annotation Truncated, if the object exceeds the limits.
func (r *Record) storeObject(text []byte, set func(p *recordState, stored []byte)) {
	Limited(r.auditor.Limiter, len(text), func() {
		text = bytes.TrimSpace(text)
		if r.omitManagedFields && len(text) > 0 {
			text = withoutManagedFields(text)
		}
		size := int64(len(text) + escapeGrowth(text))
		fits := size <= r.auditor.MaxObject && r.auditor.budget.tryAcquire(r.principal, size)
		var stored []byte
		if fits {
			stored = compact(bytes.Clone(text))
		}
		p := r.lock()
		if p != nil {
			defer p.mu.Unlock()
		}
		if p == nil || p.final {
			if fits {
				r.auditor.budget.release(r.principal, size)
			}
			return
		}
		set(p, stored)
		if fits {
			p.heldBytes += size
		} else {
			r.annotate(p, Truncated, "true")
		}
	})
}

// compact returns a text in the form of encoding/json, or nil for invalid JSON. It returns text
// itself if it has that form.
func compact(text []byte) []byte {
	if jsontext.Compact(text) {
		return text
	}
	out, err := json.Marshal(json.RawMessage(text))
	if err != nil || len(text) == 0 {
		return nil
	}
	return out
}

// markup holds the characters that encoding/json escapes.
const markup = "<>&\u2028\u2029"

// escapeGrowth returns the maximum number of bytes by which escaping lengthens a text.
func escapeGrowth(text []byte) (n int) {
	for _, c := range markup {
		n += bytes.Count(text, []byte(string(c))) * (len(`\u0000`) - utf8.RuneLen(c))
	}
	return n
}

// BeginResponse records the code of the response, which begins now. For long-running requests it
// emits the ResponseStarted event.
func (r *Record) BeginResponse(ctx context.Context, code int) {
	p := r.lock()
	if p == nil {
		return
	}
	if p.started || p.final {
		p.mu.Unlock()
		return
	}
	p.started = true
	p.setCode(code)
	long := p.longRunning
	p.mu.Unlock()
	if long {
		_ = r.emit(ctx, ResponseStarted) // too late to reject the request
	}
}

// setCode sets the code of the response. The caller holds mu.
func (p *recordState) setCode(code int) {
	if p.event.Status == nil {
		p.status.Code = int32(code)
		p.event.Status = &p.status
		return
	}
	st := *p.event.Status
	st.Code = int32(code)
	p.event.Status = &st
}

// End emits the last event of the request and ends the record. failure is the value of a panic of
// the handler, or nil.
func (r *Record) End(ctx context.Context, failure any) {
	p := r.lock()
	if p == nil {
		return
	}
	long, started := p.longRunning, p.started
	if failure == nil && p.event.Status == nil {
		p.event.Status = &metav1.Status{Code: 200, Status: metav1.StatusSuccess, Message: "Connection closed early"}
	}
	p.mu.Unlock()
	last := ResponseComplete
	if failure != nil {
		last = Panic
		r.setPanic(failure)
	} else {
		if long && !started {
			_ = r.emit(ctx, ResponseStarted)
		}
		r.annotateLatency()
	}
	r.update(func(p *recordState) { p.final = true })
	_ = r.emit(ctx, last) // the request is done and cannot be rejected
	r.close()
}

// close ends the record and releases its bytes.
func (r *Record) close() {
	p := r.lock()
	if p == nil {
		return
	}
	r.auditor.budget.release(r.principal, p.heldBytes)
	p.generation++
	p.recordData = recordData{}
	p.mu.Unlock()
	r.auditor.states.Put(p)
}

// emit emits the event of a stage and returns the errors of sinks. Only ResponseStarted needs a
// snapshot: at the other stages no other goroutine changes the event. The record must not be
// closed.
func (r *Record) emit(ctx context.Context, s Stage) error {
	if r.omit.Has(s) {
		return nil
	}
	e := &r.state.event
	if s == ResponseStarted {
		p := r.lock()
		if p == nil {
			return nil
		}
		e = new(p.event)
		if e.Object == &p.object {
			e.Object = new(p.object)
		}
		if e.Status == &p.status {
			e.Status = new(p.status)
		}
		// The record may add more.
		e.Annotations = slices.Clone(e.Annotations)
		e.SourceIPs = slices.Clone(e.SourceIPs)
		p.mu.Unlock()
	}
	e.Stage = s
	if s == RequestReceived {
		e.Staged = e.Received
	} else {
		e.Staged = time.Now()
	}
	return r.auditor.emit(ctx, e)
}
