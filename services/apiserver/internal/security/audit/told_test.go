package audit

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// decided is a policy that decides the same of everything.
type decided Decision

func (d decided) Decide(*requestinfo.Info, *request.User) Decision { return Decision(d) }

// told is an event as its readers have it.
type told struct {
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

// sink keeps what it is told.
type sink struct {
	events []told
	fail   error
	during func() // it has an event
}

func (s *sink) Process(_ context.Context, e *Event) error {
	if s.during != nil {
		s.during()
	}
	var read told
	line := e.AppendLine(nil)
	if err := json.Unmarshal(line, &read); err != nil {
		return err
	}
	read.line = string(line)
	s.events = append(s.events, read)
	return s.fail
}

func (s *sink) last(t *testing.T) told {
	t.Helper()
	if len(s.events) == 0 {
		t.Fatal("nothing is told")
	}
	return s.events[len(s.events)-1]
}

func (s *sink) stages() (out []string) {
	for _, e := range s.events {
		out = append(out, e.Stage)
	}
	return out
}

// newTrail tells a sink what is decided; 1 KiB of an object is told.
func newTrail(d Decision) (*Trail, *sink) {
	s := &sink{}
	return New(Config{
		Policy: decided(d), Sinks: []Sink{s}, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		MaxObject: 1 << 10, MaxObjects: 4 << 10,
	}), s
}

var ofPods = &requestinfo.Info{Verb: "get", IsResource: true, Resource: "pods"}

func nothing() Arrival { return Arrival{ID: "id"} }

// TestObjectsAreToldFromTheirLevelOn, and not made below it: who is told of metadata reads no
// secrets.
func TestObjectsAreToldFromTheirLevelOn(t *testing.T) {
	for level, want := range map[Level][3]string{
		Metadata: {"", "", ""}, Request: {`"asked"`, "", ""}, RequestResponse: {`"asked"`, `"shown"`, `"copied"`},
	} {
		trail, s := newTrail(Decision{Level: level})
		for i, show := range []func(r *Record){
			func(r *Record) { r.Shown([]byte(`"shown"`)) },
			func(r *Record) { c := r.Copy(); c.Write([]byte(`"copied"`)); c.Close() },
		} {
			r := trail.Open(ofPods, nil, nothing)
			made := false
			r.Asked(&metav1.ObjectMeta{Name: "n"}, func() ([]byte, error) { made = true; return []byte(`"asked"`), nil })
			show(r)
			r.Ends(t.Context(), nil)
			e := s.last(t)
			if string(e.RequestObject) != want[0] || string(e.ResponseObject) != want[1+i] || made != (want[0] != "") || e.ObjectRef.Name != "n" {
				t.Errorf("%s: told %s and %s, made: %v, of %+v", level, e.RequestObject, e.ResponseObject, made, e.ObjectRef)
			}
			if e.Annotations[Truncated] != "" {
				t.Errorf("%s: %v", level, e.Annotations)
			}
		}
	}
}

// TestNoRecordTakesEverything of requests that are not told.
func TestNoRecordTakesEverything(t *testing.T) {
	trail, s := newTrail(Decision{Level: None})
	r := trail.Open(ofPods, nil, func() Arrival { t.Error("it is asked whence it comes"); return Arrival{} })
	if r != nil || (*Trail)(nil).Open(ofPods, nil, nothing) != nil || From(t.Context()) != nil {
		t.Fatal("there is a record")
	}
	text := func() ([]byte, error) { t.Error("an object is made"); return nil, nil }
	if err := r.Receive(t.Context()); err != nil || r.Wants(None) {
		t.Error(err)
	}
	r.Annotate("k", "v")
	r.AnnotateAll(map[string]string{"k": "v"})
	r.Impersonate(&request.User{})
	r.Acts(ofPods)
	r.Spent(Store, 1)
	r.Track(Store).Done()
	r.Asked(&metav1.ObjectMeta{}, text)
	r.AskedText(text)
	r.Answered(&metav1.Status{})
	r.Shown([]byte("{}"))
	c := r.Copy()
	c.Write([]byte("{}"))
	if !c.Full() {
		t.Error("more is wanted")
	}
	c.Close()
	c.Drop()
	if len(s.events) > 0 {
		t.Errorf("told %+v", s.events)
	}
}

// TestLongObjectsAreNotTold, which is said, nor do they take room from others.
func TestLongObjectsAreNotTold(t *testing.T) {
	ada, eve := &request.User{Name: "ada"}, &request.User{Name: "eve"}
	text := func(n int) []byte { return []byte(`"` + strings.Repeat("x", n-2) + `"`) }
	trail, s := newTrail(Decision{Level: RequestResponse})
	begin := func(u *request.User) *Record { return trail.Open(ofPods, u, nothing) }
	ends := func(r *Record, whole bool) {
		t.Helper()
		r.Ends(t.Context(), nil)
		if e := s.last(t); (e.ResponseObject != nil) != whole || (e.Annotations[Truncated] == "true") == whole {
			t.Errorf("whole: %v; %d bytes, %v", !whole, len(e.ResponseObject), e.Annotations)
		}
	}
	copied := func(r *Record, parts ...[]byte) *Copy {
		c := r.Copy()
		for _, p := range parts {
			c.Write(p)
		}
		return c
	}
	for _, n := range []int{1 << 10, 1<<10 + 1} { // one at a time
		r := begin(ada)
		r.Shown(text(n))
		ends(r, n <= 1<<10)
		r = begin(ada)
		copied(r, text(n)[:n/2], text(n)[n/2:]).Close()
		ends(r, n <= 1<<10)
	}
	a, b, c := begin(ada), begin(ada), begin(ada) // ada holds as much as is free at most
	a.Shown(text(1 << 10))
	copied(b, text(1<<10)).Close()
	full := copied(c, text(1<<10))
	if !full.Full() {
		t.Error("there is room for more than a user may hold")
	}
	full.Write(text(2))
	full.Close()
	d := begin(eve)
	copied(d, text(1<<10)).Close()
	ends(c, false)
	ends(d, true)
	ends(a, true)
	ends(b, true)
	for range 10 { // what is not told holds nothing
		r := begin(ada)
		copied(r, text(1<<10)).Drop()
		long := copied(r, text(512), text(1<<10))
		long.Drop()
		long.Drop()
		r.Ends(t.Context(), nil)
		if e := s.last(t); e.ResponseObject != nil || e.Annotations[Truncated] != "" {
			t.Errorf("what is dropped is told: %s %v", e.ResponseObject, e.Annotations)
		}
		late := copied(r, text(600))
		if late.Close(); !late.Full() {
			t.Error("what is closed takes more")
		}
		late.Drop()
		r.Shown(text(600))
	}
	var last []*Record
	for range 3 {
		r := begin(ada)
		r.Shown(text(1 << 10))
		last = append(last, r)
	}
	ends(last[2], false) // nor is more given back than was held
	ends(last[1], true)
	ends(last[0], true)
}

// TestManagedFieldsAreNotTold where the policy says so, however an object comes.
func TestManagedFieldsAreNotTold(t *testing.T) {
	text := []byte(` {"metadata": {"managedFields": [1], "name": "<n>"}} `)
	for _, omit := range []bool{true, false} {
		trail, s := newTrail(Decision{Level: RequestResponse, OmitManagedFields: omit})
		want := `{"metadata":{"managedFields":[1],"name":"\u003cn\u003e"}}`
		if omit {
			want = `{"metadata":{"name":"\u003cn\u003e"}}`
		}
		for _, show := range []func(r *Record){
			func(r *Record) { r.Shown(text) },
			func(r *Record) { c := r.Copy(); c.Write(text); c.Close() },
		} {
			r := trail.Open(ofPods, nil, nothing)
			r.AskedText(func() ([]byte, error) { return text, nil })
			r.AskedText(func() ([]byte, error) { return []byte(`"later"`), nil })
			show(r)
			r.Ends(t.Context(), nil)
			if e := s.last(t); string(e.RequestObject) != want || string(e.ResponseObject) != want {
				t.Errorf("omit: %v: told %s and %s", omit, e.RequestObject, e.ResponseObject)
			}
		}
	}
}

// TestWhatIsNoJSONIsNotTold: a log of events stays one.
func TestWhatIsNoJSONIsNotTold(t *testing.T) {
	for _, text := range []string{"", " ", "nonsense", `{"a":`, "{}\n{}"} {
		trail, s := newTrail(Decision{Level: RequestResponse, OmitManagedFields: text == " "})
		r := trail.Open(ofPods, nil, nothing)
		r.Shown([]byte(text))
		r.AskedText(func() ([]byte, error) { return []byte(`"x"`), errors.New("it cannot be made") })
		r.Ends(t.Context(), nil)
		if e := s.last(t); e.ResponseObject != nil || e.RequestObject != nil {
			t.Errorf("%q is told as %s, %s", text, e.ResponseObject, e.RequestObject)
		}
	}
}

// TestAnnotations are told once, as many as there is room for.
func TestAnnotations(t *testing.T) {
	trail, s := newTrail(Decision{Level: Metadata})
	var log strings.Builder
	trail.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := trail.Open(ofPods, nil, nothing)
	r.Annotate("a", "1")
	r.Annotate("a", "1")
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
	r.AnnotateAll(map[string]string{"a": "2", "b": "3"})
	if !strings.Contains(log.String(), "key=a") {
		t.Errorf("logged %s", &log)
	}
	r.Annotate("half", strings.Repeat("x", 1<<19))
	r.Annotate("more", strings.Repeat("x", 1<<19))
	r.Annotate("most", strings.Repeat("x", 1<<20))
	r.Annotate("c", "4")
	trail.Logger = nil
	r.Annotate("c", "5")
	r.Ends(t.Context(), nil)
	a := s.last(t).Annotations
	if n := strings.Count(s.last(t).line, Truncated); n != 1 {
		t.Errorf("it is told %d times that something lacks", n)
	}
	if len(a) != 5 || a["a"] != "1" || a["b"] != "3" || a["c"] != "4" || len(a["half"]) != 1<<19 || a[Truncated] != "true" {
		t.Errorf("%d are told: a is %q, b %q, c %q, truncated %q", len(a), a["a"], a["b"], a["c"], a[Truncated])
	}
}

// TestNothingChangesWhatASinkHas: the last event is the sinks' own.
func TestNothingChangesWhatASinkHas(t *testing.T) {
	trail, s := newTrail(Decision{Level: RequestResponse})
	r := trail.Open(ofPods, nil, nothing)
	r.Answered(&metav1.Status{Code: 201})
	s.during = func() {
		r.Annotate("k", "late")
		r.AnnotateAll(map[string]string{"l": "late"})
		r.Impersonate(&request.User{Name: "late"})
		r.Asked(&metav1.ObjectMeta{Name: "late"}, func() ([]byte, error) { return []byte(`"late"`), nil })
		r.Answered(&metav1.Status{Message: "late"})
		r.Shown([]byte(`"late"`))
		c := r.Copy()
		c.Write([]byte(`"late"`))
		c.Close()
		r.Begins(t.Context(), 404)
	}
	r.Ends(t.Context(), nil)
	e := s.last(t)
	if len(e.Annotations) > 0 || e.ImpersonatedUser != nil || e.ObjectRef.Name != "" || e.RequestObject != nil || e.ResponseObject != nil || e.ResponseStatus.Code != 201 || e.ResponseStatus.Message != "" {
		t.Errorf("told %+v", e)
	}
	s.during = nil
	for range 2 { // no room is lost
		a, b := trail.Open(ofPods, nil, nothing), trail.Open(ofPods, nil, nothing)
		a.Shown([]byte(`"` + strings.Repeat("x", 1000) + `"`))
		b.Shown([]byte(`"` + strings.Repeat("x", 1000) + `"`))
		b.Ends(t.Context(), nil)
		if s.last(t).ResponseObject == nil {
			t.Error("there is no room")
		}
		a.Ends(t.Context(), nil)
	}
}

// TestTheBeginOfAnAnswerIsToldAsItWas, whatever becomes of its request meanwhile.
func TestTheBeginOfAnAnswerIsToldAsItWas(t *testing.T) {
	watch := &requestinfo.Info{Verb: "watch", IsResource: true, Resource: "pods", Name: "first", Foreign: http.NotFoundHandler()}
	trail, s := newTrail(Decision{Level: Metadata})
	r := trail.Open(watch, nil, nothing)
	r.Impersonate(&request.User{Name: "eve"})
	r.Annotate("a", "1")
	s.during = func() {
		s.during = nil
		r.Annotate("b", "late")
		r.Impersonate(nil)
		r.Ends(t.Context(), nil)
		next := trail.Open(&requestinfo.Info{IsResource: true, Resource: "nodes", Name: "next"}, nil, func() Arrival { return Arrival{Source: "10.0.0.2"} })
		next.Begins(t.Context(), 404)
		next.Annotate("c", "next")
		next.Ends(t.Context(), nil)
	}
	r.Begins(t.Context(), 201)
	e := s.last(t)
	if e.Stage != "ResponseStarted" || len(e.Annotations) != 1 || e.Annotations["a"] != "1" || e.ImpersonatedUser.Username != "eve" || e.ObjectRef.Name != "first" || e.ResponseStatus.Code != 201 {
		t.Errorf("told %s", e.line)
	}
	if len(s.events) != 3 || s.events[0].Annotations["b"] != "late" || s.events[0].ImpersonatedUser != nil {
		t.Errorf("told %+v", s.events)
	}
}

// TestObjectsNameThemselves where their path did not.
func TestObjectsNameThemselves(t *testing.T) {
	trail, s := newTrail(Decision{Level: Metadata})
	obj := &metav1.ObjectMeta{Namespace: "ns", Name: "made", UID: "u", ResourceVersion: "7"}
	for _, c := range []struct {
		op   *requestinfo.Info
		obj  metav1.Object
		want string
	}{
		{&requestinfo.Info{IsResource: true, Resource: "pods"}, obj, "ns made u 7"},
		{&requestinfo.Info{IsResource: true, Resource: "pods", Namespace: "other", Name: "said"}, obj, "other said u 7"},
		{&requestinfo.Info{IsResource: true, Resource: "pods", Name: "said"}, nil, " said  "},
		{&requestinfo.Info{Path: "/healthz"}, obj, ""},
	} {
		r := trail.Open(c.op, nil, nothing)
		r.Asked(c.obj, func() ([]byte, error) { return nil, nil })
		r.Ends(t.Context(), nil)
		got := ""
		if o := s.last(t).ObjectRef; o != nil {
			got = strings.Join([]string{o.Namespace, o.Name, o.UID, o.ResourceVersion}, " ")
		}
		if got != c.want {
			t.Errorf("%+v: told %q, want %q", c.op, got, c.want)
		}
	}
}

// TestStages of requests, by how they end.
func TestStages(t *testing.T) {
	watch := &requestinfo.Info{Verb: "watch", IsResource: true, Resource: "pods", Foreign: http.NotFoundHandler()}
	for _, c := range []struct {
		name string
		op   *requestinfo.Info
		omit StageSet
		do   func(r *Record)
		fail any
		want string
		code int32
		text string
	}{
		{"nothing said", ofPods, 0, func(*Record) {}, nil, "RequestReceived ResponseComplete", 200, "Connection closed early"},
		{"the first code counts", ofPods, 0, func(r *Record) { r.Begins(t.Context(), 404); r.Begins(t.Context(), 200) }, nil, "RequestReceived ResponseComplete", 404, ""},
		{"a status and its code", ofPods, 0, func(r *Record) { r.Answered(&metav1.Status{Message: "m", Code: 500}); r.Begins(t.Context(), 409) }, nil, "RequestReceived ResponseComplete", 409, "m"},
		{"a panic", ofPods, 0, func(r *Record) { r.Begins(t.Context(), 200) }, "oh", "RequestReceived Panic", 500, "APIServer panic'd: oh"},
		{"a panic without an answer", watch, 0, func(*Record) {}, "oh", "RequestReceived Panic", 500, "APIServer panic'd: oh"},
		{"a watch", watch, 0, func(r *Record) { r.Begins(t.Context(), 200) }, nil, "RequestReceived ResponseStarted ResponseComplete", 200, ""},
		{"a watch that says nothing", watch, 0, func(*Record) {}, nil, "RequestReceived ResponseStarted ResponseComplete", 200, "Connection closed early"},
		{"known better later", ofPods, 0, func(r *Record) { r.Acts(watch); r.Begins(t.Context(), 200) }, nil, "RequestReceived ResponseStarted ResponseComplete", 200, ""},
		{"left out", watch, SetOf(RequestReceived, ResponseStarted), func(r *Record) { r.Begins(t.Context(), 200) }, nil, "ResponseComplete", 200, ""},
		{"a panic left out", ofPods, SetOf(Panic), func(*Record) {}, "oh", "RequestReceived", 0, ""},
	} {
		trail, s := newTrail(Decision{Level: Metadata, Omit: c.omit})
		r := trail.Open(c.op, nil, nothing)
		<-time.After(time.Millisecond)
		if err := r.Receive(t.Context()); err != nil {
			t.Error(err)
		}
		if len(s.events) > 0 && s.events[0].StageTimestamp != s.events[0].RequestReceivedTimestamp {
			t.Errorf("%s: received at %s, told so at %s", c.name, s.events[0].RequestReceivedTimestamp, s.events[0].StageTimestamp)
		}
		c.do(r)
		r.Ends(t.Context(), c.fail)
		r.Ends(t.Context(), nil)
		r.Begins(t.Context(), 200)
		if got := strings.Join(s.stages(), " "); got != c.want {
			t.Errorf("%s: told %s", c.name, got)
		}
		if st := s.last(t).ResponseStatus; c.code > 0 && (st.Code != c.code || st.Message != c.text) {
			t.Errorf("%s: told %+v", c.name, st)
		}
	}
}

// TestARefusedRequestHoldsNothing, and is counted.
func TestARefusedRequestHoldsNothing(t *testing.T) {
	trail, s := newTrail(Decision{Level: RequestResponse})
	s.fail = errors.New("the disk is full")
	r := trail.Open(ofPods, nil, nothing)
	if err := r.Receive(t.Context()); !errors.Is(err, s.fail) || testutil.ToFloat64(trail.Metrics.rejected) != 1 {
		t.Errorf("%v, counted %v", err, testutil.ToFloat64(trail.Metrics.rejected))
	}
	s.fail = nil
	if r.Ends(t.Context(), nil); len(s.events) != 1 {
		t.Errorf("told %v", s.stages())
	}
	r = trail.Open(ofPods, nil, nothing)
	if err := r.Receive(t.Context()); err != nil || testutil.ToFloat64(trail.Metrics.rejected) != 1 {
		t.Error(err)
	}
}

// TestTheTimeOfSlowRequestsIsTold, and by default of those above half a second.
func TestTheTimeOfSlowRequestsIsTold(t *testing.T) {
	watch := &requestinfo.Info{Verb: "watch", IsResource: true, Resource: "pods"}
	for _, c := range []struct {
		slow time.Duration
		op   *requestinfo.Info
		want bool
	}{{0, ofPods, false}, {time.Nanosecond, ofPods, true}, {time.Nanosecond, watch, false}} {
		slow, want := c.slow, c.want
		s := &sink{}
		trail := New(Config{Policy: decided{Level: Metadata}, Sinks: []Sink{s}, Metrics: NewMetrics(prometheus.NewRegistry()), Slow: slow})
		r := trail.Open(c.op, nil, nothing)
		r.Spent(Store, time.Second)
		r.Spent(Store, -time.Second)
		r.Track(Queueing).Done()
		r.Ends(t.Context(), nil)
		a := s.last(t).Annotations
		if (a[latencyPrefix+"etcd"] == "1s") != want || (a[latencyPrefix+"apf-queue-wait"] != "") != want || (a[latencyPrefix+"total"] != "") != want {
			t.Errorf("told %v", a)
		}
		for _, none := range []string{"decode-response-object", "authentication"} {
			if v, ok := a[latencyPrefix+none]; ok {
				t.Errorf("%s took %s", none, v)
			}
		}
	}
}

// TestAnonymousRequestsShareRoomByAddress: all have the same user name.
func TestAnonymousRequestsShareRoomByAddress(t *testing.T) {
	trail, s := newTrail(Decision{Level: RequestResponse})
	anonymous := &request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	from := func(principal string) *Record {
		return trail.Open(ofPods, anonymous, func() Arrival { return Arrival{ID: "id", Principal: principal} })
	}
	text := []byte(`"` + strings.Repeat("x", 1<<10-2) + `"`)
	var held []*Record
	for range 3 { // as many as one principal may hold, and one more
		r := from("network 192.0.2.0/24")
		r.Shown(text)
		held = append(held, r)
	}
	other := from("network 198.51.100.0/24")
	other.Shown(text)
	other.Ends(t.Context(), nil)
	if e := s.last(t); e.ResponseObject == nil {
		t.Error("an object of another address has no room")
	}
	for _, r := range held {
		r.Ends(t.Context(), nil)
	}
	if len(trail.room.held) != 0 {
		t.Errorf("%v are held", trail.room.held)
	}
}
