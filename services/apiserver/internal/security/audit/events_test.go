package audit

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// fixedPolicy is a policy with one decision for all requests.
type fixedPolicy Decision

func (d fixedPolicy) Decide(*requestinfo.Info, *request.User) Decision { return Decision(d) }

// eventJSON is a decoded event.
type eventJSON struct {
	Level, Stage, RequestURI, Verb string
	ImpersonatedUser               *struct{ Username string }
	SourceIPs                      []string
	UserAgent                      string
	ObjectRef                      *struct{ Resource, Namespace, Name, UID, ResourceVersion string }
	ResponseStatus                 *metav1.Status
	RequestObject, ResponseObject  json.RawMessage
	Annotations                    map[string]string

	RequestReceivedTimestamp, StageTimestamp string
	line                                     string
}

// recordingSink keeps the events and returns fail.
type recordingSink struct {
	events []eventJSON
	fail   error
	during func() // called during Process
}

func (sink *recordingSink) Process(_ context.Context, event *Event) error {
	if sink.during != nil {
		sink.during()
	}
	var read eventJSON
	line := event.AppendLine(nil)
	if err := json.Unmarshal(line, &read); err != nil {
		return err
	}
	read.line = string(line)
	sink.events = append(sink.events, read)
	return sink.fail
}

func (sink *recordingSink) lastEvent(t *testing.T) eventJSON {
	t.Helper()
	if len(sink.events) == 0 {
		t.Fatal("got no event, want one")
	}
	return sink.events[len(sink.events)-1]
}

func (sink *recordingSink) stages() (out []string) {
	for _, e := range sink.events {
		out = append(out, e.Stage)
	}
	return out
}

// newAuditor returns an auditor with a fixed decision and a limit of 1 KiB per object, and its
// sink.
func newAuditor(d Decision) (*Auditor, *recordingSink) {
	sink := &recordingSink{}
	return New(Config{
		Policy:     fixedPolicy(d),
		Sinks:      []Sink{sink},
		Metrics:    NewMetrics(prometheus.NewRegistry()),
		Logger:     slog.New(slog.DiscardHandler),
		MaxObject:  1 << 10,
		MaxObjects: 4 << 10,
	}), sink
}

var podsInfo = &requestinfo.Info{Verb: "get", IsResource: true, Resource: "pods"}

func newArrival() ReceivedRequest { return ReceivedRequest{ID: "id"} }

// TestObjectsAreRecordedFromTheirLevel checks that objects are recorded from their level on, and
// not encoded below it.
func TestObjectsAreRecordedFromTheirLevel(t *testing.T) {
	for level, want := range map[Level][3]string{
		Metadata:        {"", "", ""},
		Request:         {`"asked"`, "", ""},
		RequestResponse: {`"asked"`, `"shown"`, `"copied"`},
	} {
		auditor, sink := newAuditor(Decision{Level: level})
		for i, show := range []func(r *Record){
			func(r *Record) { r.SetResponseObject([]byte(`"shown"`)) },
			func(r *Record) { c := r.Copy(); c.Write([]byte(`"copied"`)); c.Close() },
		} {
			r := auditor.Open(podsInfo, nil, newArrival)
			made := false
			r.SetRequestObject(&metav1.ObjectMeta{Name: "n"}, func() ([]byte, error) { made = true; return []byte(`"asked"`), nil })
			show(r)
			r.End(t.Context(), nil)
			e := sink.lastEvent(t)
			if string(e.RequestObject) != want[0] ||
				string(e.ResponseObject) != want[1+i] ||
				made != (want[0] != "") ||
				e.ObjectRef.Name != "n" {
				t.Errorf("%s: got objects %s and %s, encoded %v, reference %+v; want %s and %s, encoded %v, name n",
					level, e.RequestObject, e.ResponseObject, made, e.ObjectRef, want[0], want[1+i], want[0] != "")
			}
			if e.Annotations[Truncated] != "" {
				t.Errorf("%s: got annotations %v, want no Truncated", level, e.Annotations)
			}
		}
	}
}

// TestNilRecordIgnoresAllCalls checks that calls on a nil record have no effect and encode nothing.
func TestNilRecordIgnoresAllCalls(t *testing.T) {
	auditor, sink := newAuditor(Decision{Level: None})
	record := auditor.Open(podsInfo, nil, func() ReceivedRequest { t.Error("got a read of the arrival, want none"); return ReceivedRequest{} })
	if record != nil {
		t.Fatal("level None: got a record, want none")
	}
	if (*Auditor)(nil).Open(podsInfo, nil, newArrival) != nil {
		t.Fatal("without auditor: got a record, want none")
	}
	if FromContext(t.Context()) != nil {
		t.Fatal("context without record: got a record, want none")
	}
	text := func() ([]byte, error) { t.Error("got an encoded object, want none"); return nil, nil }
	if err := record.Receive(t.Context()); err != nil || record.Enabled(None) {
		t.Error(err)
	}
	record.Annotate("k", "v")
	record.AnnotateAll(map[string]string{"k": "v"})
	record.Impersonate(&request.User{})
	record.SetRequestInfo(podsInfo)
	record.AddDuration(Store, 1)
	record.StartTimer(Store).Stop()
	record.SetRequestObject(&metav1.ObjectMeta{}, text)
	record.SetRequestText(text)
	record.SetResponseStatus(&metav1.Status{})
	record.SetResponseObject([]byte("{}"))
	c := record.Copy()
	c.Write([]byte("{}"))
	if !c.Full() {
		t.Error("nil copy: got one that is not full, want a full one")
	}
	c.Close()
	c.Drop()
	if len(sink.events) > 0 {
		t.Errorf("got events %+v, want none", sink.events)
	}
}

// TestLargeObjectsAreTruncated checks that objects beyond the limits are omitted, marked as
// truncated, and take no bytes from other requests.
func TestLargeObjectsAreTruncated(t *testing.T) {
	ada, eve := &request.User{Name: "ada"}, &request.User{Name: "eve"}
	objectOf := func(n int) []byte { return []byte(`"` + strings.Repeat("x", n-2) + `"`) }
	auditor, sink := newAuditor(Decision{Level: RequestResponse})
	openRecord := func(user *request.User) *Record { return auditor.Open(podsInfo, user, newArrival) }
	wantRecorded := func(record *Record) {
		t.Helper()
		record.End(t.Context(), nil)
		if e := sink.lastEvent(t); e.ResponseObject == nil || e.Annotations[Truncated] == "true" {
			t.Errorf("got %d bytes of the object, annotations %v, want the object and no truncation", len(e.ResponseObject), e.Annotations)
		}
	}
	wantOmitted := func(record *Record) {
		t.Helper()
		record.End(t.Context(), nil)
		if e := sink.lastEvent(t); e.ResponseObject != nil || e.Annotations[Truncated] != "true" {
			t.Errorf("got %d bytes of the object, annotations %v, want no object and a truncation", len(e.ResponseObject), e.Annotations)
		}
	}
	copyOf := func(record *Record, parts ...[]byte) *Copy {
		beyondShare := record.Copy()
		for _, p := range parts {
			beyondShare.Write(p)
		}
		return beyondShare
	}

	// 1. An object of the maximum size is recorded, a larger one is omitted.
	for n, wantObject := range map[int]func(*Record){1 << 10: wantRecorded, 1<<10 + 1: wantOmitted} {
		record := openRecord(ada)
		record.SetResponseObject(objectOf(n))
		wantObject(record)
		record = openRecord(ada)
		copyOf(record, objectOf(n)[:n/2], objectOf(n)[n/2:]).Close()
		wantObject(record)
	}

	// 2. A user holds at most as many bytes as are free, so that another user gets some.
	first, second, beyondShare := openRecord(ada), openRecord(ada), openRecord(ada)
	first.SetResponseObject(objectOf(1 << 10))
	copyOf(second, objectOf(1<<10)).Close()
	full := copyOf(beyondShare, objectOf(1<<10))
	if !full.Full() {
		t.Error("got room beyond the share of a user, want the record full")
	}
	full.Write(objectOf(2))
	full.Close()
	ofEve := openRecord(eve)
	copyOf(ofEve, objectOf(1<<10)).Close()
	wantOmitted(beyondShare)
	wantRecorded(ofEve)
	wantRecorded(first)
	wantRecorded(second)

	// 3. Dropped objects, and those of ended records, hold no bytes.
	for range 10 {
		record := openRecord(ada)
		copyOf(record, objectOf(1<<10)).Drop()
		long := copyOf(record, objectOf(512), objectOf(1<<10))
		long.Drop()
		long.Drop()
		record.End(t.Context(), nil)
		if e := sink.lastEvent(t); e.ResponseObject != nil || e.Annotations[Truncated] != "" {
			t.Errorf("dropped object: got %s %v; want nil, \"\"", e.ResponseObject, e.Annotations)
		}
		late := copyOf(record, objectOf(600))
		late.Close()
		if !late.Full() {
			t.Error("closed copy: got one that is not full, want a full one")
		}
		late.Drop()
		record.SetResponseObject(objectOf(600))
	}

	// 4. No more bytes were released than were held.
	var last []*Record
	for range 3 {
		record := openRecord(ada)
		record.SetResponseObject(objectOf(1 << 10))
		last = append(last, record)
	}
	wantOmitted(last[2])
	wantRecorded(last[1])
	wantRecorded(last[0])
}

// TestManagedFieldsAreOmittedByPolicy checks that OmitManagedFields removes managedFields from the
// request and the response object.
func TestManagedFieldsAreOmittedByPolicy(t *testing.T) {
	text := []byte(` {"metadata": {"managedFields": [1], "name": "<n>"}} `)
	for _, omit := range []bool{true, false} {
		auditor, sink := newAuditor(Decision{Level: RequestResponse, OmitManagedFields: omit})
		want := `{"metadata":{"managedFields":[1],"name":"\u003cn\u003e"}}`
		if omit {
			want = `{"metadata":{"name":"\u003cn\u003e"}}`
		}
		for _, setResponse := range []func(r *Record){
			func(r *Record) { r.SetResponseObject(text) },
			func(r *Record) { c := r.Copy(); c.Write(text); c.Close() },
		} {
			r := auditor.Open(podsInfo, nil, newArrival)
			r.SetRequestText(func() ([]byte, error) { return text, nil })
			r.SetRequestText(func() ([]byte, error) { return []byte(`"later"`), nil })
			setResponse(r)
			r.End(t.Context(), nil)
			if e := sink.lastEvent(t); string(e.RequestObject) != want || string(e.ResponseObject) != want {
				t.Errorf("omit = %v: got %s and %s, want %s", omit, e.RequestObject, e.ResponseObject, want)
			}
		}
	}
}

// TestInvalidJSONIsOmitted checks that invalid JSON is omitted, so that the event stays valid JSON.
func TestInvalidJSONIsOmitted(t *testing.T) {
	for _, text := range []string{"", " ", "nonsense", `{"a":`, "{}\n{}"} {
		auditor, sink := newAuditor(Decision{Level: RequestResponse, OmitManagedFields: text == " "})
		r := auditor.Open(podsInfo, nil, newArrival)
		r.SetResponseObject([]byte(text))
		r.SetRequestText(func() ([]byte, error) { return []byte(`"x"`), errors.New("encoding failed") })
		r.End(t.Context(), nil)
		if e := sink.lastEvent(t); e.ResponseObject != nil || e.RequestObject != nil {
			t.Errorf("%q: got %s, %s, want no objects", text, e.ResponseObject, e.RequestObject)
		}
	}
}

// TestAnnotationsAreRecordedOnce checks that the first value of a key is recorded, within the total
// limit.
func TestAnnotationsAreRecordedOnce(t *testing.T) {
	auditor, sink := newAuditor(Decision{Level: Metadata})
	var log strings.Builder
	auditor.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	record := auditor.Open(podsInfo, nil, newArrival)
	record.Annotate("a", "1")
	record.Annotate("a", "1")
	if log.Len() > 0 {
		t.Errorf("got log %s, want none", &log)
	}
	record.AnnotateAll(map[string]string{"a": "2", "b": "3"})
	if !strings.Contains(log.String(), "key=a") {
		t.Errorf("got log %s, want key=a", &log)
	}
	record.Annotate("half", strings.Repeat("x", 1<<19))
	record.Annotate("more", strings.Repeat("x", 1<<19))
	record.Annotate("most", strings.Repeat("x", 1<<20))
	record.Annotate("c", "4")
	auditor.Logger = nil
	record.Annotate("c", "5")
	record.End(t.Context(), nil)
	a := sink.lastEvent(t).Annotations
	if n := strings.Count(sink.lastEvent(t).line, Truncated); n != 1 {
		t.Errorf("got %d truncated annotations, want 1", n)
	}
	if len(a) != 5 || a["a"] != "1" || a["b"] != "3" || a["c"] != "4" || len(a["half"]) != 1<<19 || a[Truncated] != "true" {
		t.Errorf("got %d annotations: a %q, b %q, c %q, truncated %q; want 5: 1, 3, 4, true",
			len(a), a["a"], a["b"], a["c"], a[Truncated])
	}
}

// TestEventOfSinkDoesNotChange checks that calls on the record during Process do not change the
// last event.
func TestEventOfSinkDoesNotChange(t *testing.T) {
	auditor, sink := newAuditor(Decision{Level: RequestResponse})
	record := auditor.Open(podsInfo, nil, newArrival)
	record.SetResponseStatus(&metav1.Status{Code: 201})
	sink.during = func() {
		record.Annotate("k", "late")
		record.AnnotateAll(map[string]string{"l": "late"})
		record.Impersonate(&request.User{Name: "late"})
		record.SetRequestObject(&metav1.ObjectMeta{Name: "late"}, func() ([]byte, error) { return []byte(`"late"`), nil })
		record.SetResponseStatus(&metav1.Status{Message: "late"})
		record.SetResponseObject([]byte(`"late"`))
		c := record.Copy()
		c.Write([]byte(`"late"`))
		c.Close()
		record.BeginResponse(t.Context(), 404)
	}
	record.End(t.Context(), nil)
	e := sink.lastEvent(t)
	if len(e.Annotations) > 0 || e.ImpersonatedUser != nil || e.ObjectRef.Name != "" ||
		e.RequestObject != nil || e.ResponseObject != nil || e.ResponseStatus.Code != 201 || e.ResponseStatus.Message != "" {
		t.Errorf("got event %+v, want the event as it was emitted", e)
	}
	sink.during = nil
	for range 2 { // no bytes are lost
		a, b := auditor.Open(podsInfo, nil, newArrival), auditor.Open(podsInfo, nil, newArrival)
		a.SetResponseObject([]byte(`"` + strings.Repeat("x", 1000) + `"`))
		b.SetResponseObject([]byte(`"` + strings.Repeat("x", 1000) + `"`))
		b.End(t.Context(), nil)
		if sink.lastEvent(t).ResponseObject == nil {
			t.Error("got no response object, want one")
		}
		a.End(t.Context(), nil)
	}
}

// TestResponseStartedEventIsSnapshot checks that the ResponseStarted event is a snapshot that later
// calls do not change.
func TestResponseStartedEventIsSnapshot(t *testing.T) {
	watch := &requestinfo.Info{Verb: "watch", IsResource: true, Resource: "pods", Name: "first", Delegate: http.NotFoundHandler()}
	auditor, sink := newAuditor(Decision{Level: Metadata})
	record := auditor.Open(watch, nil, newArrival)
	record.Impersonate(&request.User{Name: "eve"})
	record.Annotate("a", "1")
	sink.during = func() {
		sink.during = nil
		record.Annotate("b", "late")
		record.Impersonate(nil)
		record.End(t.Context(), nil)
		next := auditor.Open(&requestinfo.Info{
			IsResource: true,
			Resource:   "nodes",
			Name:       "next",
		}, nil, func() ReceivedRequest { return ReceivedRequest{Source: "10.0.0.2"} })
		next.BeginResponse(t.Context(), 404)
		next.Annotate("c", "next")
		next.End(t.Context(), nil)
	}
	record.BeginResponse(t.Context(), 201)
	e := sink.lastEvent(t)
	if e.Stage != "ResponseStarted" || len(e.Annotations) != 1 || e.Annotations["a"] != "1" ||
		e.ImpersonatedUser.Username != "eve" || e.ObjectRef.Name != "first" || e.ResponseStatus.Code != 201 {
		t.Errorf("got event %s, want ResponseStarted with 201, the annotation a=1, user eve, object first", e.line)
	}
	if len(sink.events) != 3 || sink.events[0].Annotations["b"] != "late" || sink.events[0].ImpersonatedUser != nil {
		t.Errorf("got events %+v, want 3, the first one with annotation b=late and no impersonated user", sink.events)
	}
}

// TestObjectFillsReference checks that the object fills the fields of the reference that the path
// did not contain.
func TestObjectFillsReference(t *testing.T) {
	auditor, sink := newAuditor(Decision{Level: Metadata})
	obj := &metav1.ObjectMeta{Namespace: "ns", Name: "made", UID: "u", ResourceVersion: "7"}
	for _, test := range []struct {
		info *requestinfo.Info
		obj  metav1.Object
		want string
	}{
		{info: &requestinfo.Info{IsResource: true, Resource: "pods"}, obj: obj, want: "ns made u 7"},
		{info: &requestinfo.Info{IsResource: true, Resource: "pods", Namespace: "other", Name: "said"}, obj: obj, want: "other said u 7"},
		{info: &requestinfo.Info{IsResource: true, Resource: "pods", Name: "said"}, want: " said  "},
		{info: &requestinfo.Info{Path: "/healthz"}, obj: obj, want: ""},
	} {
		r := auditor.Open(test.info, nil, newArrival)
		r.SetRequestObject(test.obj, func() ([]byte, error) { return nil, nil })
		r.End(t.Context(), nil)
		got := ""
		if o := sink.lastEvent(t).ObjectRef; o != nil {
			got = strings.Join([]string{o.Namespace, o.Name, o.UID, o.ResourceVersion}, " ")
		}
		if got != test.want {
			t.Errorf("%+v: got %q, want %q", test.info, got, test.want)
		}
	}
}
