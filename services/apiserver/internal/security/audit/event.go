package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/request"
)

// Version is the only version of events and policies.
const Version = "audit.k8s.io/v1"

// Truncated is the annotation of an event from which objects or other data were omitted.
const Truncated = "audit.k8s.io/truncated"

// Event is the audit event of a request at one stage. It does not change while a sink processes it.
type Event struct {
	Level            Level
	ID               string
	Stage            Stage
	URI              string
	Verb             string
	User             *request.User // nil before authentication
	Impersonated     *request.User
	SourceIPs        []string
	UserAgent        string
	Object           *Reference
	Status           *metav1.Status
	RequestObject    []byte // JSON, as ResponseObject
	ResponseObject   []byte
	Received, Staged time.Time
	Annotations      Annotations
}

// Annotations is a list of annotations with unique keys.
type Annotations []Annotation

// Annotation is the key and value of an annotation.
type Annotation struct{ Key, Value string }

// Get returns the value of a key, or "".
func (a Annotations) Get(key string) string {
	if i := a.index(key); i >= 0 {
		return a[i].Value
	}
	return ""
}

func (a Annotations) index(key string) int {
	return slices.IndexFunc(a, func(w Annotation) bool { return w.Key == key })
}

// with returns a copy with a value for a key.
func (a Annotations) with(key, value string) Annotations {
	out := slices.DeleteFunc(slices.Clone(a), func(w Annotation) bool { return w.Key == key })
	return append(out, Annotation{key, value})
}

// Reference is the object reference of a request.
type Reference struct {
	Resource, Namespace, Name, UID                     string
	APIGroup, APIVersion, ResourceVersion, Subresource string
}

// eventPrefix is the beginning of an event outside of a list.
const eventPrefix = `{"kind":"Event","apiVersion":"` + Version + `",`

// AppendLine appends the JSON of the event with kind and apiVersion, without a newline.
func (e *Event) AppendLine(dst []byte) []byte { return e.append(append(dst, eventPrefix...)) }

// AppendItem appends the JSON of an event as an item of a list. line is the output of AppendLine.
func AppendItem(dst, line []byte) []byte { return append(append(dst, '{'), line[len(eventPrefix):]...) }

// WithoutObjects returns the event without its objects and with Truncated.
func (e *Event) WithoutObjects() *Event {
	short := *e
	short.RequestObject = nil
	short.ResponseObject = nil
	short.Annotations = e.Annotations.with(Truncated, "true")
	return &short
}

const (
	// minimalText is the maximum length in bytes of texts from the client in a minimal event, and
	// minimalList the maximum length of lists.
	minimalText, minimalList = 256, 8
)

// Minimal returns the event without objects, with truncated texts and lists, and with Truncated.
func (e *Event) Minimal() *Event {
	short := e.WithoutObjects()
	short.URI, short.UserAgent = truncate(e.URI), truncate(e.UserAgent)
	short.User, short.Impersonated = minimalUser(e.User), minimalUser(e.Impersonated)
	short.SourceIPs = e.SourceIPs[max(0, len(e.SourceIPs)-minimalList):] // the last is the connection's
	if e.Object != nil {
		o := *e.Object
		for _, s := range []*string{&o.Resource, &o.Namespace, &o.Name, &o.UID, &o.APIGroup, &o.APIVersion, &o.ResourceVersion, &o.Subresource} {
			*s = truncate(*s)
		}
		short.Object = &o
	}
	if e.Status != nil {
		short.Status = &metav1.Status{Status: e.Status.Status, Reason: e.Status.Reason, Message: truncate(e.Status.Message), Code: e.Status.Code}
	}
	short.Annotations = slices.DeleteFunc(short.Annotations, func(w Annotation) bool { return len(w.Key) > minimalText || len(w.Value) > minimalText })
	return short
}

// minimalUser returns a user with shortened texts.
func minimalUser(u *request.User) *request.User {
	if u == nil {
		return nil
	}
	short := &request.User{Name: truncate(u.Name), UID: truncate(u.UID)}
	for _, g := range u.Groups[:min(len(u.Groups), minimalList)] {
		short.Groups = append(short.Groups, truncate(g))
	}
	return short
}

func truncate(s string) string {
	if len(s) > minimalText {
		return s[:minimalText] + truncationMark
	}
	return s
}

// append appends the event without eventPrefix, in the field order of Kubernetes.
func (e *Event) append(b []byte) []byte {
	b = append(b, `"level":"`...)
	b = append(b, e.Level.String()...)
	b = append(b, `","auditID":`...)
	b = jsontext.AppendString(b, e.ID)
	b = append(b, `,"stage":"`...)
	b = append(b, e.Stage.String()...)
	b = append(b, `","requestURI":`...)
	b = jsontext.AppendString(b, e.URI)
	b = append(b, `,"verb":`...)
	b = jsontext.AppendString(b, e.Verb)
	b = append(b, `,"user":`...)
	b = appendUser(b, e.User)
	if e.Impersonated != nil {
		b = append(b, `,"impersonatedUser":`...)
		b = appendUser(b, e.Impersonated)
	}
	b = appendStrings(b, `,"sourceIPs":`, e.SourceIPs)
	b = appendField(b, `,"userAgent":`, e.UserAgent)
	if e.Object != nil {
		b = append(b, `,"objectRef":`...)
		b = e.Object.append(b)
	}
	if e.Status != nil {
		b = append(b, `,"responseStatus":`...)
		b = appendStatus(b, e.Status)
	}
	b = appendObject(b, `,"requestObject":`, e.RequestObject)
	b = appendObject(b, `,"responseObject":`, e.ResponseObject)
	b = append(b, `,"requestReceivedTimestamp":`...)
	received := len(b)
	b = appendTime(b, e.Received)
	written := len(b)
	b = append(b, `,"stageTimestamp":`...)
	if e.Staged == e.Received { // RequestReceived
		b = append(b, b[received:written]...)
	} else {
		b = appendTime(b, e.Staged)
	}
	if len(e.Annotations) > 0 {
		b = append(b, `,"annotations":`...)
		begin := byte('{')
		var few [16]Annotation
		words := append(few[:0], e.Annotations...)
		slices.SortFunc(words, func(a, b Annotation) int { return strings.Compare(a.Key, b.Key) })
		for i := range words {
			b = append(b, begin)
			b = jsontext.AppendString(b, words[i].Key)
			b = append(b, ':')
			b = jsontext.AppendString(b, words[i].Value)
			begin = ','
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

func (r *Reference) append(b []byte) []byte {
	from := len(b)
	b = appendField(b, `,"resource":`, r.Resource)
	b = appendField(b, `,"namespace":`, r.Namespace)
	b = appendField(b, `,"name":`, r.Name)
	b = appendField(b, `,"uid":`, r.UID)
	b = appendField(b, `,"apiGroup":`, r.APIGroup)
	b = appendField(b, `,"apiVersion":`, r.APIVersion)
	b = appendField(b, `,"resourceVersion":`, r.ResourceVersion)
	b = appendField(b, `,"subresource":`, r.Subresource)
	return closeObject(b, from)
}

// appendUser appends a user as a JSON object.
func appendUser(b []byte, u *request.User) []byte {
	from := len(b)
	if u != nil {
		b = appendField(b, `,"username":`, u.Name)
		b = appendField(b, `,"uid":`, u.UID)
		b = appendStrings(b, `,"groups":`, u.Groups)
		if len(u.Extra) > 0 {
			b = append(b, `,"extra":`...)
			begin := byte('{')
			var few [8]string
			keys := slices.AppendSeq(few[:0], maps.Keys(u.Extra))
			slices.Sort(keys)
			for _, k := range keys {
				b = append(b, begin)
				b = jsontext.AppendString(b, k)
				if values := u.Extra[k]; len(values) == 0 {
					b = append(b, `:[]`...)
				} else {
					b = appendStrings(b, ":", values)
				}
				begin = ','
			}
			b = append(b, '}')
		}
	}
	return closeObject(b, from)
}

// closeObject turns the fields from index from on, each with a leading comma, into a JSON object.
func closeObject(b []byte, from int) []byte {
	if len(b) == from {
		return append(b, "{}"...)
	}
	b[from] = '{'
	return append(b, '}')
}

// appendStatus appends a Status without its kind.
func appendStatus(b []byte, s *metav1.Status) []byte {
	if s.Status == "" && s.Message == "" && s.Reason == "" && s.Details == nil && s.ListMeta == (metav1.ListMeta{}) {
		b = append(b, `{"metadata":{}`...)
		if s.Code != 0 {
			b = strconv.AppendInt(append(b, `,"code":`...), int64(s.Code), 10)
		}
		return append(b, '}')
	}
	bare := *s
	bare.TypeMeta = metav1.TypeMeta{}
	text, err := json.Marshal(&bare)
	if err != nil { // cannot happen: all fields can be encoded
		return append(b, "{}"...)
	}
	return append(b, text...)
}

func appendObject(b []byte, name string, object []byte) []byte {
	if len(object) == 0 {
		return b
	}
	return append(append(b, name...), object...)
}

func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return jsontext.AppendString(append(b, name...), value)
}

func appendStrings(b []byte, name string, values []string) []byte {
	if len(values) == 0 {
		return b
	}
	b = append(b, name...)
	begin := byte('[')
	for _, v := range values {
		b = jsontext.AppendString(append(b, begin), v)
		begin = ','
	}
	return append(b, ']')
}

// appendTime appends a time in UTC, with microseconds.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	text := [...]byte{'"', 0, 0, 0, 0, '-', 0, 0, '-', 0, 0, 'T', 0, 0, ':', 0, 0, ':', 0, 0, '.', 0, 0, 0, 0, 0, 0, 'Z', '"'}
	put := func(at, n int) { text[at], text[at+1] = byte('0'+n/10%10), byte('0'+n%10) }
	put(1, year/100)
	put(3, year)
	put(6, int(month))
	put(9, day)
	put(12, hour)
	put(15, minute)
	put(18, second)
	micro := t.Nanosecond() / 1000
	put(21, micro/10000)
	put(23, micro/100)
	put(25, micro)
	return append(b, text[:]...)
}
