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
	RequestObject    []byte // JSON
	ResponseObject   []byte // JSON
	Received, Staged time.Time
	Annotations      Annotations
}

// Annotations is a list of annotations with unique keys.
type Annotations []Annotation

// Annotation is the key and value of an annotation.
type Annotation struct{ Key, Value string }

// Get returns the value of a key, or "".
func (a Annotations) Get(key string) string {
	if i := a.indexOf(key); i >= 0 {
		return a[i].Value
	}
	return ""
}

func (a Annotations) indexOf(key string) int {
	return slices.IndexFunc(a, func(w Annotation) bool { return w.Key == key })
}

// withKey returns a copy in which a key has a value.
func (a Annotations) withKey(key, value string) Annotations {
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
func (event *Event) AppendLine(dst []byte) []byte {
	return event.appendFields(append(dst, eventPrefix...))
}

// AppendItem appends the JSON of an event as an item of a list. line is the output of AppendLine.
func AppendItem(dst, line []byte) []byte { return append(append(dst, '{'), line[len(eventPrefix):]...) }

// WithoutObjects returns the event without its objects and with Truncated.
func (event *Event) WithoutObjects() *Event {
	short := *event
	short.RequestObject = nil
	short.ResponseObject = nil
	short.Annotations = event.Annotations.withKey(Truncated, "true")
	return &short
}

const (
	// minimalText is the maximum length in bytes of texts from the client in a minimal event.
	// minimalList is the maximum length of lists.
	minimalText, minimalList = 256, 8
)

// Minimal returns the event without objects, with truncated texts and lists, and with Truncated.
func (event *Event) Minimal() *Event {
	short := event.WithoutObjects()
	short.URI, short.UserAgent = truncateText(event.URI), truncateText(event.UserAgent)
	short.User, short.Impersonated = minimalUser(event.User), minimalUser(event.Impersonated)
	short.SourceIPs = event.SourceIPs[max(0, len(event.SourceIPs)-minimalList):] // the last is the connection's
	if event.Object != nil {
		object := *event.Object
		for _, s := range []*string{
			&object.Resource, &object.Namespace, &object.Name,
			&object.UID, &object.APIGroup, &object.APIVersion, &object.ResourceVersion, &object.Subresource,
		} {
			*s = truncateText(*s)
		}
		short.Object = &object
	}
	if event.Status != nil {
		short.Status = &metav1.Status{
			Status:  event.Status.Status,
			Reason:  event.Status.Reason,
			Message: truncateText(event.Status.Message),
			Code:    event.Status.Code,
		}
	}
	short.Annotations = slices.DeleteFunc(short.Annotations, func(w Annotation) bool {
		return len(w.Key) > minimalText || len(w.Value) > minimalText
	})
	return short
}

// minimalUser returns a user with shortened texts.
func minimalUser(user *request.User) *request.User {
	if user == nil {
		return nil
	}
	short := &request.User{Name: truncateText(user.Name), UID: truncateText(user.UID)}
	for _, g := range user.Groups[:min(len(user.Groups), minimalList)] {
		short.Groups = append(short.Groups, truncateText(g))
	}
	return short
}

// truncateText returns a text of at most minimalText bytes, with truncationMark if it was cut.
func truncateText(s string) string {
	if len(s) > minimalText {
		return s[:minimalText] + truncationMark
	}
	return s
}

// appendFields appends the event without eventPrefix, in the field order of Kubernetes.
func (event *Event) appendFields(data []byte) []byte {
	data = append(data, `"level":"`...)
	data = append(data, event.Level.String()...)
	data = append(data, `","auditID":`...)
	data = jsontext.AppendString(data, event.ID)
	data = append(data, `,"stage":"`...)
	data = append(data, event.Stage.String()...)
	data = append(data, `","requestURI":`...)
	data = jsontext.AppendString(data, event.URI)
	data = append(data, `,"verb":`...)
	data = jsontext.AppendString(data, event.Verb)
	data = append(data, `,"user":`...)
	data = appendUser(data, event.User)
	if event.Impersonated != nil {
		data = append(data, `,"impersonatedUser":`...)
		data = appendUser(data, event.Impersonated)
	}
	data = appendStrings(data, `,"sourceIPs":`, event.SourceIPs)
	data = appendField(data, `,"userAgent":`, event.UserAgent)
	if event.Object != nil {
		data = append(data, `,"objectRef":`...)
		data = event.Object.appendJSON(data)
	}
	if event.Status != nil {
		data = append(data, `,"responseStatus":`...)
		data = appendStatus(data, event.Status)
	}
	data = appendObject(data, `,"requestObject":`, event.RequestObject)
	data = appendObject(data, `,"responseObject":`, event.ResponseObject)
	data = append(data, `,"requestReceivedTimestamp":`...)
	timeStart := len(data)
	data = appendTime(data, event.Received)
	timeEnd := len(data)
	data = append(data, `,"stageTimestamp":`...)
	if event.Staged == event.Received { // RequestReceived: copy the formatted time
		data = append(data, data[timeStart:timeEnd]...)
	} else {
		data = appendTime(data, event.Staged)
	}
	data = appendAnnotations(data, event.Annotations)
	return append(data, '}')
}

// appendAnnotations appends the field of the annotations, sorted by key, unless there are none.
func appendAnnotations(data []byte, annotations Annotations) []byte {
	if len(annotations) == 0 {
		return data
	}
	data = append(data, `,"annotations":`...)
	separator := byte('{')
	var buffer [16]Annotation // on the stack
	sorted := append(buffer[:0], annotations...)
	slices.SortFunc(sorted, func(a, b Annotation) int { return strings.Compare(a.Key, b.Key) })
	for i := range sorted {
		data = append(data, separator)
		data = jsontext.AppendString(data, sorted[i].Key)
		data = append(data, ':')
		data = jsontext.AppendString(data, sorted[i].Value)
		separator = ','
	}
	return append(data, '}')
}

// appendJSON appends the reference as a JSON object.
func (r *Reference) appendJSON(b []byte) []byte {
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
func appendUser(data []byte, user *request.User) []byte {
	from := len(data)
	if user != nil {
		data = appendField(data, `,"username":`, user.Name)
		data = appendField(data, `,"uid":`, user.UID)
		data = appendStrings(data, `,"groups":`, user.Groups)
		if len(user.Extra) > 0 {
			data = append(data, `,"extra":`...)
			separator := byte('{')
			var buffer [8]string // on the stack
			keys := slices.AppendSeq(buffer[:0], maps.Keys(user.Extra))
			slices.Sort(keys)
			for _, k := range keys {
				data = append(data, separator)
				data = jsontext.AppendString(data, k)
				if values := user.Extra[k]; len(values) == 0 {
					data = append(data, `:[]`...)
				} else {
					data = appendStrings(data, ":", values)
				}
				separator = ','
			}
			data = append(data, '}')
		}
	}
	return closeObject(data, from)
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
func appendStatus(data []byte, status *metav1.Status) []byte {
	if status.Status == "" && status.Message == "" && status.Reason == "" && status.Details == nil && status.ListMeta == (metav1.ListMeta{}) {
		data = append(data, `{"metadata":{}`...)
		if status.Code != 0 {
			data = strconv.AppendInt(append(data, `,"code":`...), int64(status.Code), 10)
		}
		return append(data, '}')
	}
	bare := *status
	bare.TypeMeta = metav1.TypeMeta{}
	text, err := json.Marshal(&bare)
	if err != nil { // cannot happen: all fields can be encoded
		return append(data, "{}"...)
	}
	return append(data, text...)
}

// appendObject appends a field whose value is JSON, unless it is empty.
func appendObject(b []byte, name string, object []byte) []byte {
	if len(object) == 0 {
		return b
	}
	return append(append(b, name...), object...)
}

// appendField appends a field with a text, unless it is empty.
func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return jsontext.AppendString(append(b, name...), value)
}

// appendStrings appends a field with a list of texts, unless it is empty.
func appendStrings(b []byte, name string, values []string) []byte {
	if len(values) == 0 {
		return b
	}
	b = append(b, name...)
	separator := byte('[')
	for _, v := range values {
		b = jsontext.AppendString(append(b, separator), v)
		separator = ','
	}
	return append(b, ']')
}

// appendTime appends a time in UTC with microseconds, such as "2026-01-02T03:04:05.000006Z".
func appendTime(data []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	text := [...]byte{'"', 0, 0, 0, 0, '-', 0, 0, '-', 0, 0, 'T', 0, 0, ':', 0, 0, ':', 0, 0, '.', 0, 0, 0, 0, 0, 0, 'Z', '"'}
	// put writes the last two digits of n.
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
	return append(data, text[:]...)
}
