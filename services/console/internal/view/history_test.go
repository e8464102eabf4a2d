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
	start    = time.Unix(1_700_000_000, 0)
	replicaA = scrape.Replica{Service: "apiserver", Address: "10.0.0.1:6443"}
	replicaB = scrape.Replica{Service: "apiserver", Address: "10.0.0.2:6443"}
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

// state returns the state of a history, which must have one.
func state(t *testing.T, history *view.History) view.State {
	t.Helper()
	current, ok := history.State()
	if !ok {
		t.Fatal("State() = false, want a state")
	}
	return current
}

// samplesOf returns the samples of one scrape. samples are pairs of a replica and its sample.
func samplesOf(samples ...any) map[scrape.Replica]*scrape.Sample {
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
		at, total := start.Add(time.Duration(i)*time.Second), float64(10*i)
		if i > 60 {
			total = 600 + 20*float64(i-60)
		}
		history.Add(at, samplesOf(replicaA, sample(at, total), replicaB, sample(at, total)), nil)
	}
	current := state(t, history)
	if len(current.Replicas) != 2 || len(current.Requests) != 1 || current.Seconds != 60 {
		t.Fatalf("got %+v, want 2 replicas and 1 kind of request over 60 s", current)
	}
	requests, replica := current.Requests[0], current.Replicas[0]
	if requests.Verb != "LIST" || requests.Code != "200" || math.Abs(requests.PerSecond-40) > 0.5 || requests.Total != 2*1780 {
		t.Errorf("all replicas: got %+v, want LIST with 200, about 40 per second, %d in all", requests, 2*1780)
	}
	if math.Abs(*replica.Requests-20) > 0.5 || math.Abs(*replica.CPU-0.2) > 0.01 {
		t.Errorf("one replica: got %v requests per second, %v CPUs, want about 20, 0.2", *replica.Requests, *replica.CPU)
	}
	// Half of the deliveries took at most 0.1 s, the rest up to 1 s.
	if math.Abs(*replica.DeliveryP99-0.982) > 0.001 {
		t.Errorf("got p99 %v, want about 0.982", *replica.DeliveryP99)
	}
}

// TestRatesIgnoreSamplesBeforeRestart checks that counters from before a restart are not compared with those after
// it.
func TestRatesIgnoreSamplesBeforeRestart(t *testing.T) {
	history := view.NewHistory()
	rejection := scrape.Rejection{Subject: "LIST pods", Reason: "403: not permitted"}
	before := sample(start, 1000)
	before.Rejections[rejection] = 5
	history.Add(start, samplesOf(replicaA, before), nil)
	failedAt := start.Add(10 * time.Second)
	history.Add(failedAt, samplesOf(replicaA, &scrape.Sample{Time: failedAt, Err: errors.New("connection refused")}), nil)
	if replica := state(t, history).Replicas[0]; replica.Error != "connection refused" || replica.Requests != nil || replica.Ready {
		t.Errorf("got replica %+v, want not ready with connection refused, and no rate", replica)
	}
	after := sample(start.Add(20*time.Second), 30)
	after.Started, after.Rejections[rejection] = 1_700_000_015, 2
	history.Add(after.Time, samplesOf(replicaA, after), nil)
	current := state(t, history)
	if replica := current.Replicas[0]; replica.Requests != nil || replica.CPU != nil || replica.DeliveryP99 != nil {
		t.Errorf("single sample: got rates %+v, want no rates", replica)
	}
	if len(current.Rejections) != 1 || current.Rejections[0].Count != 2 {
		t.Errorf("got rejections %+v, want one reason with 2 rejections", current.Rejections)
	}
}

// TestRejectionsAreListedOnce checks that only increases of counters are listed, newest first and
// limited in number.
func TestRejectionsAreListedOnce(t *testing.T) {
	history := view.NewHistory()
	for i := range 300 {
		at := start.Add(time.Duration(i) * time.Second)
		newSample := sample(at, 0)
		for subject := range 2 {
			newSample.Rejections[scrape.Rejection{Subject: fmt.Sprint("subject ", subject), Reason: "reason"}] = float64(i / 2) // every other second
		}
		history.Add(at, samplesOf(replicaA, newSample), nil)
	}
	got := state(t, history).Rejections
	if len(got) != 200 {
		t.Fatalf("got %d rejections, want 200", len(got))
	}
	if newest := got[0]; !newest.Time.Equal(start.Add(298*time.Second)) || newest.Count != 1 || newest.Service != "apiserver" ||
		newest.Address != replicaA.Address {
		t.Errorf("newest: got %+v, want one of apiserver at %s, 298 s after the begin", newest, replicaA.Address)
	}
}

// TestMissingServicesChecksAndCertificatesAreShown checks that missing services, failing checks and certificates are shown.
func TestMissingServicesChecksAndCertificatesAreShown(t *testing.T) {
	history := view.NewHistory()
	ends := start.Add(time.Hour)
	newSample := sample(start, 0)
	newSample.Certificates = []scrape.Certificate{
		{Use: "serving", File: "b.crt", NotAfter: ends},
		{Use: "client-ca", File: "a.crt", NotAfter: start},
	}
	newSample.Failing, newSample.Ready = []string{"fan-out"}, false
	history.Add(start, samplesOf(replicaA, newSample, replicaB, newSample), []scrape.MissingTarget{{Service: "console", Err: errors.New("no such host")}})
	got := state(t, history)
	if len(got.Missing) != 1 || got.Missing[0].Error != "no such host" {
		t.Errorf("got missing %+v, want one: no such host", got.Missing)
	}
	if replica := got.Replicas[1]; replica.Ready || len(replica.Failing) != 1 || replica.Address != replicaB.Address {
		t.Errorf("got replica %+v, want %s, not ready, with one failing check", replica, replicaB.Address)
	}
	// One entry per certificate of all replicas, the first to expire above.
	if len(got.Certificates) != 2 || got.Certificates[0].File != "a.crt" || !got.Certificates[1].Ends.Equal(ends) {
		t.Errorf("got certificates %+v, want 2, a.crt first, the other valid until %v", got.Certificates, ends)
	}
}

// TestOnlyAPIServersHaveWatchers checks that figures of API servers are absent for other services.
func TestOnlyAPIServersHaveWatchers(t *testing.T) {
	history := view.NewHistory()
	newSample := sample(start, 0)
	newSample.Source, newSample.Leader = "", true
	history.Add(start, samplesOf(replicaA, newSample), nil)
	if replica := state(t, history).Replicas[0]; replica.Watchers != nil || replica.LagSeconds != nil || !replica.Leader {
		t.Errorf("got replica %+v, want a leader without watchers and lag", replica)
	}
}

// TestSeriesCoverFifteenMinutes checks that points are kept at a distance and for a time, with the
// rates and percentiles of all replicas.
func TestSeriesCoverFifteenMinutes(t *testing.T) {
	history := view.NewHistory()
	for i := range 1200 { // 20 minutes, scraped once per second
		at, total := start.Add(time.Duration(i)*time.Second), float64(10*i)
		sampleA, sampleB := sample(at, total), sample(at, total)
		sampleA.Latencies = []scrape.Bucket{{Seconds: 0.1, Count: total}, {Seconds: 1, Count: total}, {Seconds: math.Inf(1), Count: total}}
		sampleB.Latencies = []scrape.Bucket{{Seconds: 0.1, Count: 0}, {Seconds: 1, Count: total}, {Seconds: math.Inf(1), Count: total}}
		sampleA.Watchers, sampleB.Watchers, sampleA.Memory, sampleB.Memory, sampleB.LagSeconds = 3, 4, 100, 200, 7
		sampleA.Members = []scrape.Member{{Cluster: "etcd-0", Endpoint: "e", Up: true, Size: 5000}}
		history.Add(at, samplesOf(replicaA, sampleA, replicaB, sampleB), nil)
	}
	got := state(t, history).Series
	if len(got) < 50 || len(got) > 70 || got[len(got)-1].Time.Sub(got[0].Time) > 15*time.Minute {
		t.Fatalf("got %d points from %s to %s, want 50 to 70 within %v", len(got), got[0].Time, got[len(got)-1].Time,
			15*time.Minute)
	}
	last := got[len(got)-1]
	if math.Abs(last.Requests-20) > 0.5 || last.Watchers != 7 || last.Memory != 300 || last.Lag != 7 || last.EtcdSize != 5000 ||
		last.LatencyP99 < 0.9 || last.LatencyP99 > 1 {
		t.Errorf("got %+v, want about 20 requests, 7 watchers, memory 300, lag 7, etcd 5000, p99 from 0.9 to 1", last)
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
		history := view.NewHistory()
		newSample := sample(start, 0)
		newSample.LagRevisions, newSample.LagSeconds = test.revisions, test.seconds
		history.Add(start, samplesOf(replicaA, newSample), nil)
		if got := *state(t, history).Replicas[0].LagSeconds; got != test.want {
			t.Errorf("lag of %v revisions, %v s: got %v s, want %v", test.revisions, test.seconds, got, test.want)
		}
	}
}

// TestStorageAndClientsAreSummedOverReplicas checks the sums and the order of resources, clients and etcd
// members over replicas.
func TestStorageAndClientsAreSummedOverReplicas(t *testing.T) {
	history := view.NewHistory()
	for i := range 2 {
		at := start.Add(time.Duration(i) * 10 * time.Second)
		sampleA, sampleB := sample(at, 0), sample(at, 0)
		sampleA.Objects, sampleA.Bytes = map[string]float64{
			"pods":    10,
			"secrets": 3,
			"nodes":   0,
		}, map[string]float64{"pods": 100, "secrets": 900}
		sampleB.Objects, sampleB.Bytes = map[string]float64{"pods": 11, "secrets": 3}, map[string]float64{"pods": 110, "secrets": 900}
		sampleA.Clients, sampleB.Clients = map[string]float64{
			"user ada": float64(100 * i),
			"user bob": 1000,
		}, map[string]float64{"user ada": float64(50 * i)}
		if i == 1 {
			sampleB.Clients["user new"] = 5000 // counted before, perhaps
		}
		sampleA.Members = []scrape.Member{
			{Cluster: "etcd-0", Endpoint: "e0", Up: false},
			{Cluster: "etcd-0", Endpoint: "e1", Up: false},
		}
		sampleB.Members = []scrape.Member{
			{Cluster: "etcd-0", Endpoint: "e0", Up: true, Leader: true},
			{Cluster: "etcd-0", Endpoint: "e1", Up: false},
		}
		history.Add(at, samplesOf(replicaA, sampleA, replicaB, sampleB), nil)
	}
	current := state(t, history)
	if want := "[{secrets 3 900} {pods 11 110}]"; fmt.Sprint(current.Resources) != want {
		t.Errorf("resources: got %v, want %s", current.Resources, want)
	}
	if want := "[{user ada 15 150} {user new 0 5000} {user bob 0 1000}]"; fmt.Sprint(current.Clients) != want {
		t.Errorf("clients: got %v, want %s", current.Clients, want)
	}
	if len(current.Etcd) != 2 || !current.Etcd[0].Up || !current.Etcd[0].Leader || current.Etcd[1].Up {
		t.Errorf("etcd: got %+v, want 2 members, the first up and leader, the second down", current.Etcd)
	}
}
