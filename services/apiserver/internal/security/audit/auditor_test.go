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
	"binnacle/services/apiserver/internal/request"
)

// TestSourceIPsIncludeForwardedAddresses checks that events record the addresses in proxy headers, followed by the client's
// own.
func TestSourceIPsIncludeForwardedAddresses(t *testing.T) {
	auditor, sink := newAuditor(Decision{Level: Metadata})
	for _, test := range []struct {
		remote, forwarded, real string
		want                    []string
	}{
		{remote: "10.0.0.1:80", forwarded: "", real: "", want: []string{"10.0.0.1"}},
		{remote: "[2001:db8::1]:80", forwarded: "", real: "", want: []string{"2001:db8::1"}},
		{remote: "[2001:db8:0::1]:80", forwarded: "", real: "", want: []string{"2001:db8::1"}},
		{remote: "[::ffff:10.0.0.1]:80", forwarded: "", real: "", want: []string{"10.0.0.1"}},
		{remote: "10.0.0.1:80", forwarded: "1.2.3.4, 5.6.7.8", real: "", want: []string{"1.2.3.4", "5.6.7.8", "10.0.0.1"}},
		{remote: "10.0.0.1:80", forwarded: "", real: "1.2.3.4", want: []string{"1.2.3.4", "10.0.0.1"}},
		{remote: "[fe80::1%eth0]:80", forwarded: "", real: "", want: nil},
		{remote: "nowhere", forwarded: "", real: "", want: nil},
		{remote: "nowhere:80", forwarded: "", real: "", want: nil},
	} {
		in := httptest.NewRequest("GET", "/x?y=1", nil)
		in.RemoteAddr = test.remote
		if test.forwarded != "" {
			in.Header.Set("X-Forwarded-For", test.forwarded)
		}
		if test.real != "" {
			in.Header.Set("X-Real-Ip", test.real)
		}
		r := auditor.Open(&requestinfo.Info{}, nil, func() ReceivedRequest { return ReceivedRequestOf(in, "id") })
		r.End(t.Context(), nil)
		if e := sink.lastEvent(t); !slices.Equal(e.SourceIPs, test.want) || e.RequestURI != "/x?y=1" || e.ObjectRef != nil {
			t.Errorf("%+v: got %q, want %q", test, e.SourceIPs, test.want)
		}
	}
}

// TestLongUserAgentIsTruncated checks that events record at most 1024 bytes of a User-Agent.
func TestLongUserAgentIsTruncated(t *testing.T) {
	for n, want := range map[int]string{1024: strings.Repeat("u", 1024), 1025: strings.Repeat("u", 1024) + "...TRUNCATED"} {
		in := httptest.NewRequest("GET", "/", nil)
		in.Header = http.Header{"User-Agent": {strings.Repeat("u", n)}}
		if got := ReceivedRequestOf(in, "").UserAgent; got != want {
			t.Errorf("%d bytes: got %d, want %d", n, len(got), len(want))
		}
	}
}

// TestInvalidPolicyKeepsPreviousPolicy checks that a failed reload keeps the policy, and that both
// outcomes are counted.
func TestInvalidPolicyKeepsPreviousPolicy(t *testing.T) {
	auditor, _ := newAuditor(Decision{Level: Metadata})
	auditor.Logger = slog.New(slog.DiscardHandler)
	auditor.SetPolicy(nil, errors.New("no policy"))
	if r := auditor.Open(podsInfo, nil, newArrival); !r.Enabled(Metadata) {
		t.Error("after a failed reload: got the new policy, want the previous one")
	}
	auditor.SetPolicy(fixedPolicy{Level: RequestResponse}, nil)
	if r := auditor.Open(podsInfo, nil, newArrival); !r.Enabled(RequestResponse) {
		t.Error("after a reload: got the previous policy, want the new one")
	}
	for status, want := range map[string]float64{"failure": 1, "success": 1} {
		if got := testutil.ToFloat64(auditor.Metrics.reloads.WithLabelValues(status)); got != want {
			t.Errorf("%s: got %v, want %v", status, got, want)
		}
	}
}

// rejectingLimiter never grants a permit.
type rejectingLimiter struct{ t *testing.T }

func (rejectingLimiter) Acquire(context.Context) error { return errors.New("no permit") }
func (n rejectingLimiter) Release()                    { n.t.Error("got a Release without a permit, want none") }

// TestLimitedRunsWithoutPermit checks that work runs without a permit if none is granted.
func TestLimitedRunsWithoutPermit(t *testing.T) {
	done := 0
	for _, turns := range []Limiter{nil, rejectingLimiter{t}} {
		for _, size := range []int{1, largeObject - 1, largeObject} {
			WithPermit(turns, size, func() { done++ })
		}
	}
	if done != 6 {
		t.Errorf("got %d calls, want 6", done)
	}
	had := &countingLimiter{}
	WithPermit(had, largeObject-1, func() {})
	WithPermit(had, largeObject, func() {})
	if *had != (countingLimiter{1, 1}) {
		t.Errorf("got %+v, want one acquisition and release", had)
	}
}

// TestLevelsAndStagesHaveNamesOfKubernetes checks that names of levels and stages are parsed to the values that have
// these names.
func TestLevelsAndStagesHaveNamesOfKubernetes(t *testing.T) {
	for i, name := range Levels() {
		if l, ok := ParseLevel(name); !ok || l != Level(i) || l.String() != name {
			t.Errorf("ParseLevel(%q) = %v, %v, want %v, true", name, l, ok, Level(i))
		}
	}
	for i, name := range Stages() {
		if s, ok := ParseStage(name); !ok || s != Stage(i) || s.String() != name || !SetOf(s).Has(s) || SetOf().Has(s) {
			t.Errorf("ParseStage(%q) = %v, %v, want %v, true", name, s, ok, Stage(i))
		}
	}
	if _, ok := ParseLevel("none"); ok {
		t.Error(`ParseLevel("none") succeeds, want it to fail: names are case-sensitive`)
	}
	if _, ok := ParseStage(""); ok {
		t.Error(`ParseStage("") succeeds, want it to fail`)
	}
}

// TestStatusIsEncodedLikeJSON checks that an event omits the empty fields of a Status, except for metadata.
func TestStatusIsEncodedLikeJSON(t *testing.T) {
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
			t.Errorf("event with status %+v: got line %s, want responseStatus %s", st, line, want)
		}
	}
}

// TestTruncatedAnnotationIsUnique checks that shortening sets Truncated once and keeps other
// annotations.
func TestTruncatedAnnotationIsUnique(t *testing.T) {
	event := &Event{
		Annotations:    Annotations{{"a", "1"}, {Truncated, "maybe"}, {"b", "2"}, {strings.Repeat("k", 257), "3"}},
		ResponseObject: []byte("{}"),
	}
	for short, most := range map[*Event]int{event.WithoutObjects(): 4, event.Minimal(): 3} {
		a := short.Annotations
		if a.Get("a") != "1" || a.Get("b") != "2" ||
			a.Get(Truncated) != "true" || a.Get("c") != "" || len(a) != most || short.ResponseObject != nil {
			t.Errorf("got event %+v, want %d annotations with Truncated and no object", short, most)
		}
	}
	if event.Annotations.Get(Truncated) != "maybe" || len(event.Annotations) != 4 {
		t.Errorf("got changed event %+v, want its 4 annotations unchanged", event)
	}
}

// TestAnonymousRequestsShareBudgetByNetwork checks that anonymous requests have the same user name
// and share the budget by network.
func TestAnonymousRequestsShareBudgetByNetwork(t *testing.T) {
	auditor, sink := newAuditor(Decision{Level: RequestResponse})
	anonymous := &request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	recordOf := func(principal string) *Record {
		return auditor.Open(podsInfo, anonymous, func() ReceivedRequest { return ReceivedRequest{ID: "id", Principal: principal} })
	}
	text := []byte(`"` + strings.Repeat("x", 1<<10-2) + `"`)
	var records []*Record
	for range 3 { // as many as one principal may hold, and one more
		r := recordOf("network 192.0.2.0/24")
		r.SetResponseObject(text)
		records = append(records, r)
	}
	other := recordOf("network 198.51.100.0/24")
	other.SetResponseObject(text)
	other.End(t.Context(), nil)
	if e := sink.lastEvent(t); e.ResponseObject == nil {
		t.Error("object of another network: got no response object, want one: each network has its own budget")
	}
	for _, r := range records {
		r.End(t.Context(), nil)
	}
	if len(auditor.budget.held) != 0 {
		t.Errorf("got bytes held by %v in the end, want none", auditor.budget.held)
	}
}
