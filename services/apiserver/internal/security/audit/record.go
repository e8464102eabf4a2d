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
	"binnacle/services/apiserver/internal/request"
)

// Record is what is known of a request that is told. A nil Record takes everything and
// tells nothing. Its methods may be called from several goroutines, and after its end, when
// they do nothing.
type Record struct {
	trail     *Trail
	principal string // that the room of its objects counts for
	level     Level
	omit      StageSet
	unowned   bool // managedFields are left out

	page *page
	turn uint64 // of the page
}

// page is what a record is written on. It is used again for other records, in turns: who has
// a record that is over finds that it is another's turn.
type page struct {
	mu   sync.Mutex // leaf, but for sinks
	turn uint64
	kept
}

// kept is what is written on a page.
type kept struct {
	event   Event
	long    bool // long-running
	started bool
	over    bool  // the event is told for the last time, and not changed any more
	held    int64 // bytes that are taken of the trail's room
	spent   [parts]time.Duration

	// What the event points to of most requests.
	object  Reference
	status  metav1.Status
	sources [1]string
	words   [4]Annotation
}

// lock returns the record's page, whose mu the caller has then; nil when the record is over.
func (r *Record) lock() *page {
	p := r.page
	p.mu.Lock()
	if p.turn != r.turn {
		p.mu.Unlock()
		return nil
	}
	return p
}

// change has a function write on the record's page, unless it is over.
func (r *Record) change(write func(p *page)) {
	if p := r.lock(); p != nil {
		defer p.mu.Unlock()
		write(p)
	}
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
	if p := r.lock(); p != nil {
		defer p.mu.Unlock()
		r.annotate(p, key, value)
	}
}

// AnnotateAll is Annotate for many.
func (r *Record) AnnotateAll(words map[string]string) {
	if r == nil || len(words) == 0 {
		return
	}
	if p := r.lock(); p != nil {
		defer p.mu.Unlock()
		for k, v := range words {
			r.annotate(p, k, v)
		}
	}
}

// maxAnnotations bounds the keys and values of one event's annotations, in bytes.
const maxAnnotations = 1 << 20

// annotate is Annotate on a page whose mu the caller has.
func (r *Record) annotate(p *page, key, value string) {
	if p.over {
		return
	}
	size := len(key) + len(value)
	for i := range p.event.Annotations {
		w := &p.event.Annotations[i]
		if w.Key == key {
			if w.Value != value && r.trail.Logger != nil {
				r.trail.Logger.Debug("an audit annotation is told once only", "key", key)
			}
			return
		}
		size += len(w.Key) + len(w.Value)
	}
	if size > maxAnnotations {
		if key, value = Truncated, "true"; p.event.Annotations.index(key) >= 0 {
			return
		}
	}
	if p.event.Annotations == nil {
		p.event.Annotations = p.words[:0]
	}
	p.event.Annotations = append(p.event.Annotations, Annotation{key, value})
}

// Impersonate notes as whom the client is seen.
func (r *Record) Impersonate(u *request.User) {
	if r == nil {
		return
	}
	r.change(func(p *page) {
		if !p.over {
			p.event.Impersonated = u
		}
	})
}

// Acts notes what the request does, when that is known better than at first.
func (r *Record) Acts(op *requestinfo.Info) {
	if r == nil {
		return
	}
	r.change(func(p *page) { p.long = op.LongRunning() })
}

// Spent adds to the time that a part of the server took.
func (r *Record) Spent(part Part, d time.Duration) {
	if r == nil || d <= 0 {
		return
	}
	if p := r.lock(); p != nil {
		p.spent[part] += d
		p.mu.Unlock()
	}
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
	if err != nil {
		return
	}
	r.keep(text, func(p *page, kept []byte) {
		if p.event.RequestObject == nil {
			p.event.RequestObject = kept
		}
	})
}

// names fills in what the path did not say of the object.
func (r *Record) names(obj metav1.Object) {
	p := r.lock()
	if p == nil {
		return
	}
	defer p.mu.Unlock()
	if p.event.Object == nil || p.over {
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

// Answered notes the Status that is answered.
func (r *Record) Answered(st *metav1.Status) {
	if r == nil {
		return
	}
	p := r.lock()
	if p == nil {
		return
	}
	defer p.mu.Unlock()
	if p.over {
		return
	}
	if r.level < RequestResponse {
		st = withoutObject(st)
	}
	p.event.Status = &metav1.Status{Status: st.Status, Message: st.Message, Reason: st.Reason, Details: st.Details, Code: st.Code}
}

// Shown notes the object that is answered, by its JSON, of which a copy is made.
func (r *Record) Shown(text []byte) {
	if !r.Wants(RequestResponse) {
		return
	}
	r.keep(text, func(p *page, kept []byte) { p.event.ResponseObject = kept })
}

// keep makes the text of an object that is kept, and notes it; nil when there is no room for it.
func (r *Record) keep(text []byte, note func(p *page, kept []byte)) {
	InTurn(r.trail.Turns, len(text), func() {
		text = bytes.TrimSpace(text)
		if r.unowned && len(text) > 0 {
			text = withoutManagedFields(text)
		}
		size := int64(len(text) + escapes(text))
		room := size <= r.trail.MaxObject && r.trail.room.take(r.principal, size)
		var kept []byte
		if room {
			kept = compact(text, size)
		}
		p := r.lock()
		if p == nil || p.over {
			if room {
				r.trail.room.give(r.principal, size)
			}
		} else {
			note(p, kept)
			if room {
				p.held += size
			} else {
				r.annotate(p, Truncated, "true")
			}
		}
		if p != nil {
			p.mu.Unlock()
		}
	})
}

// compact is a text as encoding/json writes it, which is so long at most; nil if it is no JSON.
func compact(text []byte, size int64) []byte {
	if len(text) == 0 || !json.Valid(text) {
		return nil
	}
	return new(tidy).append(make([]byte, 0, size), text)
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
	p := r.lock()
	if p == nil {
		return
	}
	if p.started || p.over {
		p.mu.Unlock()
		return
	}
	p.started = true
	p.setCode(code)
	long := p.long
	p.mu.Unlock()
	if long {
		_ = r.tell(ctx, ResponseStarted) // it is too late to refuse the request
	}
}

// setCode of the answer. The caller holds mu.
func (p *page) setCode(code int) {
	if p.event.Status == nil {
		p.status.Code, p.event.Status = int32(code), &p.status
		return
	}
	st := *p.event.Status
	st.Code = int32(code)
	p.event.Status = &st
}

// Ends tells that the request is over; failure is what its handler panicked with, if it
// did. Nothing is noted any more.
func (r *Record) Ends(ctx context.Context, failure any) {
	p := r.lock()
	if p == nil {
		return
	}
	long, started := p.long, p.started
	if failure == nil && p.event.Status == nil {
		p.event.Status = &metav1.Status{Code: 200, Status: metav1.StatusSuccess, Message: "Connection closed early"}
	}
	p.mu.Unlock()
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
	r.change(func(p *page) { p.over = true })
	_ = r.tell(ctx, last) // what is done cannot be refused any more
	r.close()
}

// close ends the record, and lets go of what it holds.
func (r *Record) close() {
	p := r.lock()
	if p == nil {
		return
	}
	r.trail.room.give(r.principal, p.held)
	p.turn++
	p.kept = kept{}
	p.mu.Unlock()
	r.trail.pages.Put(p)
}

// tell makes an event of what is known, and returns the error of a sink that has to know.
// Before anybody has the request, and after it is over, nobody changes the page's own. It
// is called by who closes the record, who has not done so.
func (r *Record) tell(ctx context.Context, s Stage) error {
	if r.omit.Has(s) {
		return nil
	}
	e := &r.page.event
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
		e.Annotations, e.SourceIPs = slices.Clone(e.Annotations), slices.Clone(e.SourceIPs) // others may come
		p.mu.Unlock()
	}
	if e.Stage = s; s == RequestReceived {
		e.Staged = e.Received
	} else {
		e.Staged = time.Now()
	}
	return r.trail.process(ctx, e)
}
