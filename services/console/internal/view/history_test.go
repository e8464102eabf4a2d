package view_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"binnacle/services/console/internal/scrape"
	"binnacle/services/console/internal/view"
)

var (
	begin = time.Unix(1_700_000_000, 0)
	one   = scrape.Replica{Service: "apiserver", Address: "10.0.0.1:6443"}
	two   = scrape.Replica{Service: "apiserver", Address: "10.0.0.2:6443"}
)

// sample returns a sample of an API server that has served a number of requests.
func sample(at time.Time, requests float64) *scrape.Sample {
	return &scrape.Sample{
		Time: at, Ready: true, Started: 1_600_000_000, Source: "nats", CPU: requests / 100,
		Requests:   map[scrape.Request]float64{{Verb: "LIST", Code: "200"}: requests},
		Rejections: map[scrape.Rejection]float64{},
		Deliveries: []scrape.Bucket{
			{Seconds: 0.1, Count: requests / 2},
			{Seconds: 1, Count: requests},
			{Seconds: math.Inf(1), Count: requests},
		},
	}
}

func state(t *testing.T, h *view.History) view.State {
	t.Helper()
	s, ok := h.State()
	if !ok {
		t.Fatal("State() = false, want a state")
	}
	return s
}

func round(samples ...any) map[scrape.Replica]*scrape.Sample {
	out := map[scrape.Replica]*scrape.Sample{}
	for i := 0; i < len(samples); i += 2 {
		out[samples[i].(scrape.Replica)] = samples[i+1].(*scrape.Sample)
	}
	return out
}

// TestRatesCoverTheLastMinute checks that rates compare the newest sample with the one of a minute
// before.
func TestRatesCoverTheLastMinute(t *testing.T) {
	history := view.NewHistory()
	if _, ok := history.State(); ok {
		t.Error("State() before the first sample = true, want false")
	}
	for i := range 120 { // 10 per second at first, then 20
		at, n := begin.Add(time.Duration(i)*time.Second), float64(10*i)
		if i > 60 {
			n = 600 + 20*float64(i-60)
		}
		history.Add(at, round(one, sample(at, n), two, sample(at, n)), nil)
	}
	s := state(t, history)
	if len(s.Replicas) != 2 || len(s.Requests) != 1 || s.Seconds != 60 {
		t.Fatalf("got %+v, want 2 replicas and 1 kind of request over 60 s", s)
	}
	q, replica := s.Requests[0], s.Replicas[0]
	if q.Verb != "LIST" || q.Code != "200" || math.Abs(q.PerSecond-40) > 0.5 || q.Total != 2*1780 {
		t.Errorf("all replicas: got %+v, want LIST with 200, about 40 per second, %d in all", q, 2*1780)
	}
	if math.Abs(*replica.Requests-20) > 0.5 || math.Abs(*replica.CPU-0.2) > 0.01 {
		t.Errorf("one replica: got %v requests per second, %v CPUs, want about 20, 0.2", *replica.Requests, *replica.CPU)
	}
	// Half of the deliveries took at most 0.1 s, the rest up to 1 s.
	if math.Abs(*replica.DeliveryP99-0.982) > 0.001 {
		t.Errorf("got p99 %v, want math.Abs(*r.DeliveryP99 - 0.982) at most 0.001", *replica.DeliveryP99)
	}
}

// TestRestartedReplica checks that counters from before a restart are not compared with those after
// it.
func TestRestartedReplica(t *testing.T) {
	history := view.NewHistory()
	why := scrape.Rejection{Subject: "LIST pods", Reason: "403: not permitted"}
	before := sample(begin, 1000)
	before.Rejections[why] = 5
	history.Add(begin, round(one, before), nil)
	gone := begin.Add(10 * time.Second)
	history.Add(gone, round(one, &scrape.Sample{Time: gone, Err: errors.New("connection refused")}), nil)
	if r := state(t, history).Replicas[0]; r.Error != "connection refused" || r.Requests != nil || r.Ready {
		t.Errorf("got replica %+v, want not ready with connection refused, and no rate", r)
	}
	after := sample(begin.Add(20*time.Second), 30)
	after.Started, after.Rejections[why] = 1_700_000_015, 2
	history.Add(after.Time, round(one, after), nil)
	s := state(t, history)
	if r := s.Replicas[0]; r.Requests != nil || r.CPU != nil || r.DeliveryP99 != nil {
		t.Errorf("single sample: got rates %+v, want no rates", r)
	}
	if len(s.Rejections) != 1 || s.Rejections[0].Count != 2 {
		t.Errorf("got %+v, want one reason with 2 rejections", s.Rejections)
	}
}

// TestRejectionsAreListedOnce checks that only increases of counters are listed, newest first and
// limited in number.
func TestRejectionsAreListedOnce(t *testing.T) {
	history := view.NewHistory()
	for i := range 300 {
		at := begin.Add(time.Duration(i) * time.Second)
		s := sample(at, 0)
		for k := range 2 {
			s.Rejections[scrape.Rejection{Subject: fmt.Sprint("what ", k), Reason: "why"}] = float64(i / 2) // every other second
		}
		history.Add(at, round(one, s), nil)
	}
	got := state(t, history).Rejections
	if len(got) != 200 {
		t.Fatalf("got %d refusals, want 200", len(got))
	}
	if r := got[0]; !r.Time.Equal(begin.Add(298*time.Second)) || r.Count != 1 || r.Service != "apiserver" ||
		r.Address != one.Address {
		t.Errorf("newest: got %+v, want one of apiserver at %s, 298 s after the begin", r, one.Address)
	}
}

// TestMissingReplicas checks that missing services, failing checks and certificates are shown.
func TestMissingReplicas(t *testing.T) {
	history := view.NewHistory()
	ends := begin.Add(time.Hour)
	s := sample(begin, 0)
	s.Certificates = []scrape.Certificate{
		{Use: "serving", File: "b.crt", NotAfter: ends},
		{Use: "client-ca", File: "a.crt", NotAfter: begin},
	}
	s.Failing, s.Ready = []string{"fan-out"}, false
	history.Add(begin, round(one, s, two, s), []scrape.MissingTarget{{Service: "console", Err: errors.New("no such host")}})
	got := state(t, history)
	if len(got.Missing) != 1 || got.Missing[0].Error != "no such host" {
		t.Errorf("got %+v, want one: no such host", got.Missing)
	}
	if r := got.Replicas[1]; r.Ready || len(r.Failing) != 1 || r.Address != two.Address {
		t.Errorf("got replica %+v, want %s, not ready, with one failing check", r, two.Address)
	}
	// One entry per certificate of all replicas, the first to expire above.
	if len(got.Certificates) != 2 || got.Certificates[0].File != "a.crt" || !got.Certificates[1].Ends.Equal(ends) {
		t.Errorf("got certificates %+v, want 2, a.crt first, the other valid until %v", got.Certificates, ends)
	}
}

// TestOnlyAPIServersHaveWatchers checks that figures of API servers are absent for other services.
func TestOnlyAPIServersHaveWatchers(t *testing.T) {
	h := view.NewHistory()
	s := sample(begin, 0)
	s.Source, s.Leader = "", true
	h.Add(begin, round(one, s), nil)
	if r := state(t, h).Replicas[0]; r.Watchers != nil || r.LagSeconds != nil || !r.Leader {
		t.Errorf("got replica %+v, want a leader without watchers and lag", r)
	}
}

// TestSeriesCoverFifteenMinutes checks that points are kept at a distance and for a time, with the
// rates and percentiles of all replicas.
func TestSeriesCoverFifteenMinutes(t *testing.T) {
	history := view.NewHistory()
	for i := range 1200 { // 20 minutes, scraped once per second
		at, n := begin.Add(time.Duration(i)*time.Second), float64(10*i)
		a, b := sample(at, n), sample(at, n)
		a.Latencies = []scrape.Bucket{{Seconds: 0.1, Count: n}, {Seconds: 1, Count: n}, {Seconds: math.Inf(1), Count: n}}
		b.Latencies = []scrape.Bucket{{Seconds: 0.1, Count: 0}, {Seconds: 1, Count: n}, {Seconds: math.Inf(1), Count: n}}
		a.Watchers, b.Watchers, a.Memory, b.Memory, b.LagSeconds = 3, 4, 100, 200, 7
		a.Members = []scrape.Member{{Cluster: "etcd-0", Endpoint: "e", Up: true, Size: 5000}}
		history.Add(at, round(one, a, two, b), nil)
	}
	got := state(t, history).Series
	if len(got) < 50 || len(got) > 70 || got[len(got)-1].Time.Sub(got[0].Time) > 15*time.Minute {
		t.Fatalf("got %d points from %s to %s, want 50 to 70 within %v", len(got), got[0].Time, got[len(got)-1].Time,
			15*time.Minute)
	}
	p := got[len(got)-1]
	if math.Abs(p.Requests-20) > 0.5 || p.Watchers != 7 || p.Memory != 300 || p.Lag != 7 || p.EtcdSize != 5000 ||
		p.LatencyP99 < 0.9 || p.LatencyP99 > 1 {
		t.Errorf("got %+v, want about 20 requests, 7 watchers, memory 300, lag 7, etcd 5000, p99 from 0.9 to 1", p)
	}
}

// TestIdleReplicaIsNotBehind checks that the time between two signs of life of the change feed does
// not count as lag.
func TestIdleReplicaIsNotBehind(t *testing.T) {
	for _, test := range []struct{ revisions, seconds, want float64 }{
		{revisions: 0, seconds: 0.529, want: 0},
		{revisions: 2, seconds: 0.529, want: 0.529},
		{revisions: 0, seconds: 12, want: 12},
	} {
		h := view.NewHistory()
		s := sample(begin, 0)
		s.LagRevisions, s.LagSeconds = test.revisions, test.seconds
		h.Add(begin, round(one, s), nil)
		if got := *state(t, h).Replicas[0].LagSeconds; got != test.want {
			t.Errorf("%+v: got %v, want %v", test, got, test.want)
		}
	}
}

// TestStorageAndClientsOfAllReplicas checks the sums and the order of resources, clients and etcd
// members over replicas.
func TestStorageAndClientsOfAllReplicas(t *testing.T) {
	history := view.NewHistory()
	for i := range 2 {
		at := begin.Add(time.Duration(i) * 10 * time.Second)
		a, b := sample(at, 0), sample(at, 0)
		a.Objects, a.Bytes = map[string]float64{
			"pods":    10,
			"secrets": 3,
			"nodes":   0,
		}, map[string]float64{"pods": 100, "secrets": 900}
		b.Objects, b.Bytes = map[string]float64{"pods": 11, "secrets": 3}, map[string]float64{"pods": 110, "secrets": 900}
		a.Clients, b.Clients = map[string]float64{
			"user ada": float64(100 * i),
			"user bob": 1000,
		}, map[string]float64{"user ada": float64(50 * i)}
		if i == 1 {
			b.Clients["user new"] = 5000 // counted before, perhaps
		}
		a.Members = []scrape.Member{
			{Cluster: "etcd-0", Endpoint: "e0", Up: false},
			{Cluster: "etcd-0", Endpoint: "e1", Up: false},
		}
		b.Members = []scrape.Member{
			{Cluster: "etcd-0", Endpoint: "e0", Up: true, Leader: true},
			{Cluster: "etcd-0", Endpoint: "e1", Up: false},
		}
		history.Add(at, round(one, a, two, b), nil)
	}
	s := state(t, history)
	if want := "[{secrets 3 900} {pods 11 110}]"; fmt.Sprint(s.Resources) != want {
		t.Errorf("resources: got %v, want %s", s.Resources, want)
	}
	if want := "[{user ada 15 150} {user new 0 5000} {user bob 0 1000}]"; fmt.Sprint(s.Clients) != want {
		t.Errorf("clients: got %v, want %s", s.Clients, want)
	}
	if len(s.Etcd) != 2 || !s.Etcd[0].Up || !s.Etcd[0].Leader || s.Etcd[1].Up {
		t.Errorf("etcd: got %+v, want 2 members, the first up and leader, the second down", s.Etcd)
	}
}
