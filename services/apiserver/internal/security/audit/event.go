package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/request"
)

// Version is the only version of events and policies.
const Version = "audit.k8s.io/v1"

// Truncated is the annotation of an event that lacks objects which it should have.
const Truncated = "audit.k8s.io/truncated"

// Event is what is told of a request at one stage. Nobody changes it while a sink has it.
type Event struct {
	Level            Level
	ID               string
	Stage            Stage
	URI              string
	Verb             string
	User             *request.User // nil while nobody knows
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

// Annotations are words on keys, each key once.
type Annotations []Annotation

// Annotation is one of them.
type Annotation struct{ Key, Value string }

// Get is the word on a key, "" when there is none.
func (a Annotations) Get(key string) string {
	if i := a.index(key); i >= 0 {
		return a[i].Value
	}
	return ""
}

func (a Annotations) index(key string) int {
	return slices.IndexFunc(a, func(w Annotation) bool { return w.Key == key })
}

// with has a word on a key; a itself is not changed.
func (a Annotations) with(key, value string) Annotations {
	out := slices.DeleteFunc(slices.Clone(a), func(w Annotation) bool { return w.Key == key })
	return append(out, Annotation{key, value})
}

// Reference is what a request is about.
type Reference struct {
	Resource, Namespace, Name, UID                     string
	APIGroup, APIVersion, ResourceVersion, Subresource string
}

// head is how an event begins that stands alone.
const head = `{"kind":"Event","apiVersion":"` + Version + `",`

// AppendLine appends the JSON of an event that stands alone, without a newline.
func (e *Event) AppendLine(dst []byte) []byte { return e.append(append(dst, head...)) }

// AppendItem appends the JSON of an event within a list, made from that of one that
// stands alone.
func AppendItem(dst, line []byte) []byte { return append(append(dst, '{'), line[len(head):]...) }

// WithoutObjects is the event without its objects, said to be so.
func (e *Event) WithoutObjects() *Event {
	short := *e
	short.RequestObject, short.ResponseObject = nil, nil
	short.Annotations = e.Annotations.with(Truncated, "true")
	return &short
}

const (
	// bareText is how much is told of what a client can make as long as it likes, in
	// bytes, and bareList how many of a list.
	bareText, bareList = 256, 8
)

// Bare is the event without its objects and without what is long in it, said to be so.
func (e *Event) Bare() *Event {
	short := e.WithoutObjects()
	short.URI, short.UserAgent = cut(e.URI), cut(e.UserAgent)
	short.User, short.Impersonated = bareUser(e.User), bareUser(e.Impersonated)
	short.SourceIPs = e.SourceIPs[max(0, len(e.SourceIPs)-bareList):] // the last is the connection's
	if e.Object != nil {
		o := *e.Object
		for _, s := range []*string{&o.Resource, &o.Namespace, &o.Name, &o.UID, &o.APIGroup, &o.APIVersion, &o.ResourceVersion, &o.Subresource} {
			*s = cut(*s)
		}
		short.Object = &o
	}
	if e.Status != nil {
		short.Status = &metav1.Status{Status: e.Status.Status, Reason: e.Status.Reason, Message: cut(e.Status.Message), Code: e.Status.Code}
	}
	short.Annotations = slices.DeleteFunc(short.Annotations, func(w Annotation) bool { return len(w.Key) > bareText || len(w.Value) > bareText })
	return short
}

func bareUser(u *request.User) *request.User {
	if u == nil {
		return nil
	}
	short := &request.User{Name: cut(u.Name), UID: cut(u.UID)}
	for _, g := range u.Groups[:min(len(u.Groups), bareList)] {
		short.Groups = append(short.Groups, cut(g))
	}
	return short
}

func cut(s string) string {
	if len(s) > bareText {
		return s[:bareText] + cutText
	}
	return s
}

// append appends all but the beginning. The order is that of the wire.
func (e *Event) append(b []byte) []byte {
	b = append(b, `"level":"`...)
	b = append(b, e.Level.String()...)
	b = append(b, `","auditID":`...)
	b = appendString(b, e.ID)
	b = append(b, `,"stage":"`...)
	b = append(b, e.Stage.String()...)
	b = append(b, `","requestURI":`...)
	b = appendString(b, e.URI)
	b = append(b, `,"verb":`...)
	b = appendString(b, e.Verb)
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
	if e.Staged == e.Received { // before anything is done
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
			b = appendString(b, words[i].Key)
			b = append(b, ':')
			b = appendString(b, words[i].Value)
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
	return closed(b, from)
}

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
				b = appendString(b, k)
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
	return closed(b, from)
}

// closed makes an object of the fields that begin at from, each with a comma.
func closed(b []byte, from int) []byte {
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
	if err != nil { // it has nothing that cannot be encoded
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
	return appendString(append(b, name...), value)
}

func appendStrings(b []byte, name string, values []string) []byte {
	if len(values) == 0 {
		return b
	}
	b = append(b, name...)
	begin := byte('[')
	for _, v := range values {
		b = appendString(append(b, begin), v)
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

// appendString appends a JSON string as encoding/json writes it, which escapes what
// would look like markup.
func appendString(b []byte, s string) []byte {
	if !plain(s) {
		text, err := json.Marshal(s)
		if err != nil { // strings can be encoded
			return append(b, `""`...)
		}
		return append(b, text...)
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// plain tells of a string that JSON has as it is. It looks at eight bytes at a time.
func plain(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	// Each is zero in the top bits where no byte is what it looks for; a byte that is not is
	// never missed, and where one before it is, that is enough to know.
	has := func(w uint64, c byte) uint64 {
		w ^= ones * uint64(c)
		return (w - ones) &^ w
	}
	for ; len(s) >= 8; s = s[8:] {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		special := w | (w-ones*' ')&^w | has(w, '"') | has(w, '\\') | has(w, '<') | has(w, '>') | has(w, '&')
		if special&tops != 0 {
			return false
		}
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
