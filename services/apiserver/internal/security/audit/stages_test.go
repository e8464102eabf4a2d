package audit

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// TestStagesDependOnOutcome checks which stages have an event, and the recorded status, for each way in
// which a request can end.
func TestStagesDependOnOutcome(t *testing.T) {
	watch := &requestinfo.Info{Verb: "watch", IsResource: true, Resource: "pods", Delegate: http.NotFoundHandler()}
	for _, test := range []struct {
		name       string
		info       *requestinfo.Info
		omit       StageSet
		respond    func(r *Record)
		panicValue any    // with which the handler ended, or nil
		want       string // stages with an event
		code       int32  // of the last event
		message    string // of the last event
	}{
		{
			name:    "no response",
			info:    podsInfo,
			respond: func(*Record) {},
			want:    "RequestReceived ResponseComplete",
			code:    200,
			message: "Connection closed early",
		},
		{
			name:    "only the first code is recorded",
			info:    podsInfo,
			respond: func(r *Record) { r.BeginResponse(t.Context(), 404); r.BeginResponse(t.Context(), 200) },
			want:    "RequestReceived ResponseComplete",
			code:    404,
		},
		{
			name: "a status and its code",
			info: podsInfo,
			respond: func(r *Record) {
				r.SetResponseStatus(&metav1.Status{Message: "m", Code: 500})
				r.BeginResponse(t.Context(), 409)
			},
			want:    "RequestReceived ResponseComplete",
			code:    409,
			message: "m",
		},
		{
			name:       "a panic",
			info:       podsInfo,
			respond:    func(r *Record) { r.BeginResponse(t.Context(), 200) },
			panicValue: "oh",
			want:       "RequestReceived Panic",
			code:       500,
			message:    "APIServer panic'd: oh",
		},
		{
			name:       "a panic without an answer",
			info:       watch,
			respond:    func(*Record) {},
			panicValue: "oh",
			want:       "RequestReceived Panic",
			code:       500,
			message:    "APIServer panic'd: oh",
		},
		{
			name:    "a watch",
			info:    watch,
			respond: func(r *Record) { r.BeginResponse(t.Context(), 200) },
			want:    "RequestReceived ResponseStarted ResponseComplete",
			code:    200,
		},
		{
			name:    "a watch without a response",
			info:    watch,
			respond: func(*Record) {},
			want:    "RequestReceived ResponseStarted ResponseComplete",
			code:    200,
			message: "Connection closed early",
		},
		{
			name:    "request info replaced by a watch",
			info:    podsInfo,
			respond: func(r *Record) { r.SetRequestInfo(watch); r.BeginResponse(t.Context(), 200) },
			want:    "RequestReceived ResponseStarted ResponseComplete",
			code:    200,
		},
		{
			name:    "omitted stages",
			info:    watch,
			omit:    SetOf(RequestReceived, ResponseStarted),
			respond: func(r *Record) { r.BeginResponse(t.Context(), 200) },
			want:    "ResponseComplete",
			code:    200,
		},
		{
			name:       "an omitted panic",
			info:       podsInfo,
			omit:       SetOf(Panic),
			respond:    func(*Record) {},
			panicValue: "oh",
			want:       "RequestReceived",
		},
	} {
		auditor, sink := newAuditor(Decision{Level: Metadata, Omit: test.omit})
		r := auditor.Open(test.info, nil, newArrival)
		<-time.After(time.Millisecond)
		if err := r.Receive(t.Context()); err != nil {
			t.Error(err)
		}
		if len(sink.events) > 0 && sink.events[0].StageTimestamp != sink.events[0].RequestReceivedTimestamp {
			t.Errorf("%s: got stage timestamp %s, want %s", test.name, sink.events[0].StageTimestamp, sink.events[0].RequestReceivedTimestamp)
		}
		test.respond(r)
		r.End(t.Context(), test.panicValue)
		r.End(t.Context(), nil)
		r.BeginResponse(t.Context(), 200)
		if got := strings.Join(sink.stages(), " "); got != test.want {
			t.Errorf("%s: got stages %s, want %s", test.name, got, test.want)
		}
		if st := sink.lastEvent(t).ResponseStatus; test.code > 0 && (st.Code != test.code || st.Message != test.message) {
			t.Errorf("%s: got status %+v, want %d %q", test.name, st, test.code, test.message)
		}
	}
}

// TestRejectedRequestHoldsNothing checks that a request that is rejected because of a sink error is
// counted and holds no bytes.
func TestRejectedRequestHoldsNothing(t *testing.T) {
	auditor, sink := newAuditor(Decision{Level: RequestResponse})
	sink.fail = errors.New("the disk is full")
	r := auditor.Open(podsInfo, nil, newArrival)
	if err := r.Receive(t.Context()); !errors.Is(err, sink.fail) || testutil.ToFloat64(auditor.Metrics.rejected) != 1 {
		t.Errorf("got error %v and %v rejections; want %v, 1", err, testutil.ToFloat64(auditor.Metrics.rejected), sink.fail)
	}
	sink.fail = nil
	r.End(t.Context(), nil)
	if len(sink.events) != 1 {
		t.Errorf("got stages %v, want length 1", sink.stages())
	}
	r = auditor.Open(podsInfo, nil, newArrival)
	if err := r.Receive(t.Context()); err != nil || testutil.ToFloat64(auditor.Metrics.rejected) != 1 {
		t.Error(err)
	}
}

// TestSlowRequestsHaveLatencyAnnotations checks that slow requests have latency annotations; the
// default threshold is half a second.
func TestSlowRequestsHaveLatencyAnnotations(t *testing.T) {
	watch := &requestinfo.Info{Verb: "watch", IsResource: true, Resource: "pods"}
	for _, test := range []struct {
		slow time.Duration
		op   *requestinfo.Info
		want bool
	}{
		{slow: 0, op: podsInfo, want: false},
		{slow: time.Nanosecond, op: podsInfo, want: true},
		{slow: time.Nanosecond, op: watch, want: false},
	} {
		slow, want := test.slow, test.want
		sink := &recordingSink{}
		auditor := New(Config{
			Policy:  fixedPolicy{Level: Metadata},
			Sinks:   []Sink{sink},
			Metrics: NewMetrics(prometheus.NewRegistry()),
			Slow:    slow,
		})
		r := auditor.Open(test.op, nil, newArrival)
		r.AddDuration(Store, time.Second/2)
		r.AddDuration(Store, time.Second/2)
		r.AddDuration(Store, -time.Second)
		r.StartTimer(Queueing).Stop()
		r.End(t.Context(), nil)
		a := sink.lastEvent(t).Annotations
		if (a[latencyPrefix+"etcd"] == "1s") != want ||
			(a[latencyPrefix+"apf-queue-wait"] != "") != want ||
			(a[latencyPrefix+"total"] != "") != want {
			t.Errorf("got annotations %v, want latencies: %t", a, want)
		}
		for _, none := range []string{"decode-response-object", "authentication"} {
			if v, ok := a[latencyPrefix+none]; ok {
				t.Errorf("got latency %s of %s, want none", v, none)
			}
		}
	}
}
