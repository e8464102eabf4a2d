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

	"binnacle/services/apiserver/internal/request"
)

// Record is what is known of a request that is told. A nil Record takes everything and
// tells nothing. Its methods may be called from several goroutines.
type Record struct {
	trail   *Trail
	level   Level
	omit    StageSet
	unowned bool // managedFields are left out

	mu      sync.Mutex // leaf, but for sinks
	event   Event
	long    bool // long-running
	started bool
	over    bool  // the event is told for the last time, and not changed any more
	held    int64 // bytes that are taken of the trail's room
	spent   [parts]time.Duration

	// What the event points to of most requests, so that there is one piece of memory for
	// all of a record.
	object  Reference
	status  metav1.Status
	sources [1]string
	words   [4]Annotation
}

// With attaches a record to a request.
func With(ctx context.Context, r *Record) context.Context { return request.WithRecord(ctx, r) }

// Attach attaches a record to a request that the server's first filter has seen, and that
// nobody else has; false when it has to be done by With.
func Attach(ctx context.Context, r *Record) bool { return request.SetRecord(ctx, r) }

// From returns the record of a request, nil when nothing is told of it.
func From(ctx context.Context) *Record {
	r, _ := request.RecordFrom(ctx).(*Record)
	return r
}

// Wants tells whether something is told that belongs to a level.
func (r *Record) Wants(l Level) bool { return r != nil && r.level >= l }

// Annotate leaves word of something. The first word on a key counts.
func (r *Record) Annotate(key, value string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.annotate(key, value)
}

// AnnotateAll is Annotate for many.
func (r *Record) AnnotateAll(words map[string]string) {
	if r == nil || len(words) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, v := range words {
		r.annotate(k, v)
	}
}

// maxAnnotations bounds the keys and values of one event's annotations, in bytes.
const maxAnnotations = 1 << 20

func (r *Record) annotate(key, value string) {
	if r.over {
		return
	}
	size := len(key) + len(value)
	for i := range r.event.Annotations {
		w := &r.event.Annotations[i]
		if w.Key == key {
			if w.Value != value && r.trail.Logger != nil {
				r.trail.Logger.Debug("an audit annotation is told once only", "key", key)
			}
			return
		}
		size += len(w.Key) + len(w.Value)
	}
	if size > maxAnnotations {
		if key, value = Truncated, "true"; r.event.Annotations.index(key) >= 0 {
			return
		}
	}
	if r.event.Annotations == nil {
		r.event.Annotations = r.words[:0]
	}
	r.event.Annotations = append(r.event.Annotations, Annotation{key, value})
}

// Impersonate notes as whom the client is seen.
func (r *Record) Impersonate(u *request.User) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.event.Impersonated = u
	}
}

// Acts notes what the request does, when that is known better than at first.
func (r *Record) Acts(op *request.Operation) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.long = op.LongRunning()
}

// Spent adds to the time that a part of the server took.
func (r *Record) Spent(part Part, d time.Duration) {
	if r == nil || d <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent[part] += d
}

// Asked notes the object that came, and what names it; encode makes its JSON, and is
// called only where that is told.
func (r *Record) Asked(obj metav1.Object, encode func() ([]byte, error)) {
	if r == nil {
		return
	}
	if obj != nil {
		r.names(obj)
	}
	r.AskedText(encode)
}

// AskedText notes what came and is no object, such as a patch, by its JSON.
func (r *Record) AskedText(encode func() ([]byte, error)) {
	if !r.Wants(Request) {
		return
	}
	text, err := encode()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && !r.over && r.event.RequestObject == nil {
		r.event.RequestObject = r.keep(text)
	}
}

// names fills in what the path did not say of the object.
func (r *Record) names(obj metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.event.Object == nil || r.over {
		return
	}
	ref := *r.event.Object
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&ref.Namespace, obj.GetNamespace())
	fill(&ref.Name, obj.GetName())
	fill(&ref.UID, string(obj.GetUID()))
	fill(&ref.ResourceVersion, obj.GetResourceVersion())
	r.event.Object = &ref
}

// Answered notes the Status that is answered.
func (r *Record) Answered(st *metav1.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.event.Status = &metav1.Status{Status: st.Status, Message: st.Message, Reason: st.Reason, Details: st.Details, Code: st.Code}
}

// Shown notes the object that is answered, by its JSON, of which a copy is made.
func (r *Record) Shown(text []byte) {
	if !r.Wants(RequestResponse) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.event.ResponseObject = r.keep(text)
	}
}

// keep makes the text of an object that is kept, or nil when there is no room for it. The
// caller holds mu.
func (r *Record) keep(text []byte) []byte {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil
	}
	if r.unowned {
		text = withoutManagedFields(text)
	}
	size := int64(len(text) + escapes(text))
	if size > r.trail.MaxObject || !r.trail.room.take(r.event.User, size) {
		r.annotate(Truncated, "true")
		return nil
	}
	r.held += size
	kept := bytes.NewBuffer(make([]byte, 0, len(text)))
	if err := json.Compact(kept, text); err != nil {
		return nil // it was no JSON
	}
	if !bytes.ContainsAny(kept.Bytes(), markup) {
		return kept.Bytes()
	}
	escaped := bytes.NewBuffer(make([]byte, 0, size))
	json.HTMLEscape(escaped, kept.Bytes())
	return escaped.Bytes()
}

// markup is what is told as escapes, as encoding/json does.
const markup = "<>&\u2028\u2029"

// escapes is by how many bytes a text grows with them, at most.
func escapes(text []byte) (n int) {
	for _, c := range markup {
		n += bytes.Count(text, []byte(string(c))) * (len(`\u0000`) - utf8.RuneLen(c))
	}
	return n
}

// Begins notes the code of the answer, which goes out now.
func (r *Record) Begins(ctx context.Context, code int) {
	r.mu.Lock()
	if r.started || r.over {
		r.mu.Unlock()
		return
	}
	r.started = true
	r.setCode(code)
	long := r.long
	r.mu.Unlock()
	if long {
		_ = r.tell(ctx, ResponseStarted) // it is too late to refuse the request
	}
}

// setCode of the answer. The caller holds mu.
func (r *Record) setCode(code int) {
	if r.event.Status == nil {
		r.status.Code, r.event.Status = int32(code), &r.status
		return
	}
	st := *r.event.Status
	st.Code = int32(code)
	r.event.Status = &st
}

// Ends tells that the request is over; failure is what its handler panicked with, if it
// did. Nothing is noted any more.
func (r *Record) Ends(ctx context.Context, failure any) {
	r.mu.Lock()
	long, started := r.long, r.started
	if failure == nil && r.event.Status == nil {
		r.event.Status = &metav1.Status{Code: 200, Status: metav1.StatusSuccess, Message: "Connection closed early"}
	}
	r.mu.Unlock()
	last := ResponseComplete
	if failure != nil {
		last = Panic
		r.failed(failure)
	} else {
		if long && !started {
			_ = r.tell(ctx, ResponseStarted)
		}
		r.tellSpent()
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	_ = r.tell(ctx, last) // what is done cannot be refused any more
	r.close()
}

// close lets go of what the record holds.
func (r *Record) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.trail.room.give(r.event.User, r.held)
	r.held = 0
}

// tell makes an event of what is known, and returns the error of a sink that has to know.
// Before anybody has the request, and after it is over, nobody changes the record's own.
func (r *Record) tell(ctx context.Context, s Stage) error {
	if r.omit.Has(s) {
		return nil
	}
	e := &r.event
	if s == ResponseStarted {
		r.mu.Lock()
		e = new(r.event)
		e.Annotations = slices.Clone(e.Annotations) // others may come
		r.mu.Unlock()
	}
	if e.Stage = s; s == RequestReceived {
		e.Staged = e.Received
	} else {
		e.Staged = time.Now()
	}
	return r.trail.process(ctx, e)
}
