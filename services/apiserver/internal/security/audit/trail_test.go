package audit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// TestWhenceRequestsCome is told as it was from each sort of address.
func TestWhenceRequestsCome(t *testing.T) {
	trail, s := newTrail(Decision{Level: Metadata})
	for _, c := range []struct {
		remote, forwarded, real string
		want                    []string
	}{
		{"10.0.0.1:80", "", "", []string{"10.0.0.1"}},
		{"[2001:db8::1]:80", "", "", []string{"2001:db8::1"}},
		{"[2001:db8:0::1]:80", "", "", []string{"2001:db8::1"}},
		{"[::ffff:10.0.0.1]:80", "", "", []string{"10.0.0.1"}},
		{"10.0.0.1:80", "1.2.3.4, 5.6.7.8", "", []string{"1.2.3.4", "5.6.7.8", "10.0.0.1"}},
		{"10.0.0.1:80", "", "1.2.3.4", []string{"1.2.3.4", "10.0.0.1"}},
		{"[fe80::1%eth0]:80", "", "", nil},
		{"nowhere", "", "", nil},
		{"nowhere:80", "", "", nil},
	} {
		in := httptest.NewRequest("GET", "/x?y=1", nil)
		in.RemoteAddr = c.remote
		if c.forwarded != "" {
			in.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if c.real != "" {
			in.Header.Set("X-Real-Ip", c.real)
		}
		r := trail.Open(&requestinfo.Info{}, nil, func() Arrival { return Arrived(in, "id") })
		r.Ends(t.Context(), nil)
		if e := s.last(t); !slices.Equal(e.SourceIPs, c.want) || e.RequestURI != "/x?y=1" || e.ObjectRef != nil {
			t.Errorf("%+v: told %q, want %q", c, e.SourceIPs, c.want)
		}
	}
}

// TestLongUserAgentsAreCut, which is said.
func TestLongUserAgentsAreCut(t *testing.T) {
	for n, want := range map[int]string{1024: strings.Repeat("u", 1024), 1025: strings.Repeat("u", 1024) + "...TRUNCATED"} {
		in := httptest.NewRequest("GET", "/", nil)
		in.Header = http.Header{"User-Agent": {strings.Repeat("u", n)}}
		if got := Arrived(in, "").UserAgent; got != want {
			t.Errorf("%d bytes are told as %d", n, len(got))
		}
	}
}

// TestAPolicyThatCannotBeUsed leaves the one before in force.
func TestAPolicyThatCannotBeUsed(t *testing.T) {
	trail, _ := newTrail(Decision{Level: Metadata})
	trail.Logger = slog.New(slog.DiscardHandler)
	trail.Follow(nil, errors.New("no policy"))
	if r := trail.Open(ofPods, nil, nothing); !r.Wants(Metadata) {
		t.Error("nothing is told any more")
	}
	trail.Follow(decided{Level: RequestResponse}, nil)
	if r := trail.Open(ofPods, nil, nothing); !r.Wants(RequestResponse) {
		t.Error("the policy before is in force")
	}
	for status, want := range map[string]float64{"failure": 1, "success": 1} {
		if got := testutil.ToFloat64(trail.Metrics.reloads.WithLabelValues(status)); got != want {
			t.Errorf("%s: %v", status, got)
		}
	}
}

// TestRequestsGoWithTheirRecords.
func TestRequestsGoWithTheirRecords(t *testing.T) {
	trail, _ := newTrail(Decision{Level: Request})
	r := trail.Open(ofPods, nil, nothing)
	if got := From(With(t.Context(), r)); got != r || !got.Wants(Request) || got.Wants(RequestResponse) {
		t.Errorf("%v goes with it", got)
	}
	r.Refuse()
	r.Close()
}

// noTurns there are.
type noTurns struct{ t *testing.T }

func (noTurns) Enter(context.Context) error { return errors.New("nobody leaves") }
func (n noTurns) Leave()                    { n.t.Error("a turn is left that nobody has") }

// TestWhatHasToBeToldIsToldWithoutATurn too.
func TestWhatHasToBeToldIsToldWithoutATurn(t *testing.T) {
	done := 0
	for _, turns := range []Turns{nil, noTurns{t}} {
		for _, size := range []int{1, long - 1, long} {
			InTurn(turns, size, func() { done++ })
		}
	}
	if done != 6 {
		t.Errorf("done %d times", done)
	}
	had := &counted{}
	InTurn(had, long-1, func() {})
	InTurn(had, long, func() {})
	if *had != (counted{1, 1}) {
		t.Errorf("turns: %+v", had)
	}
}

// TestNames of levels and stages.
func TestNames(t *testing.T) {
	for i, name := range Levels() {
		if l, ok := ParseLevel(name); !ok || l != Level(i) || l.String() != name {
			t.Errorf("%s: %v %v", name, l, ok)
		}
	}
	for i, name := range Stages() {
		if s, ok := ParseStage(name); !ok || s != Stage(i) || s.String() != name || !SetOf(s).Has(s) || SetOf().Has(s) {
			t.Errorf("%s: %v %v", name, s, ok)
		}
	}
	if _, ok := ParseLevel("none"); ok {
		t.Error("none is a level")
	}
	if _, ok := ParseStage(""); ok {
		t.Error("nothing is a stage")
	}
}

// TestStatusesAreToldWhole, whatever they say.
func TestStatusesAreToldWhole(t *testing.T) {
	for want, st := range map[string]*metav1.Status{
		`{"metadata":{}}`:                                 {},
		`{"metadata":{},"code":7}`:                        {Code: 7},
		`{"metadata":{},"status":"x","code":7}`:           {Code: 7, Status: "x"},
		`{"metadata":{},"message":"x","code":7}`:          {Code: 7, Message: "x"},
		`{"metadata":{},"reason":"x","code":7}`:           {Code: 7, Reason: "x"},
		`{"metadata":{},"details":{"name":"x"},"code":7}`: {Code: 7, Details: &metav1.StatusDetails{Name: "x"}},
		`{"metadata":{"resourceVersion":"x"},"code":7}`:   {Code: 7, ListMeta: metav1.ListMeta{ResourceVersion: "x"}},
	} {
		if line := string((&Event{Status: st}).AppendLine(nil)); !strings.Contains(line, `"responseStatus":`+want+",") {
			t.Errorf("%s, want %s", line, want)
		}
	}
}

// TestWhatIsLeftOutIsSaidOnce, and leaves what else is said.
func TestWhatIsLeftOutIsSaidOnce(t *testing.T) {
	e := &Event{Annotations: Annotations{{"a", "1"}, {Truncated, "maybe"}, {"b", "2"}, {strings.Repeat("k", 257), "3"}}, ResponseObject: []byte("{}")}
	for short, most := range map[*Event]int{e.WithoutObjects(): 4, e.Bare(): 3} {
		a := short.Annotations
		if a.Get("a") != "1" || a.Get("b") != "2" || a.Get(Truncated) != "true" || a.Get("c") != "" || len(a) != most || short.ResponseObject != nil {
			t.Errorf("is %+v", short)
		}
	}
	if e.Annotations.Get(Truncated) != "maybe" || len(e.Annotations) != 4 {
		t.Errorf("became %+v", e)
	}
}

// TestBareEventsLackWhatIsNotThere.
func TestBareEventsLackWhatIsNotThere(t *testing.T) {
	line := string((&Event{Stage: ResponseComplete, RequestObject: []byte("{}")}).Bare().AppendLine(nil))
	for _, none := range []string{"impersonatedUser", "objectRef", "responseStatus", "requestObject", "sourceIPs"} {
		if strings.Contains(line, none) {
			t.Errorf("has %s: %s", none, line)
		}
	}
	if !strings.Contains(line, `"user":{}`) {
		t.Errorf("whose is %s", line)
	}
}
