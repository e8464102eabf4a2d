package scrape

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestParseTargetRejectsInvalidTargets checks the syntax of --target.
func TestParseTargetRejectsInvalidTargets(t *testing.T) {
	for text, ok := range map[string]bool{
		"apiserver=https://apiserver-replicas:6443": true, "a=https://[::1]:1": true, "a=https://10.0.0.1:1/": true,
		"apiserver":             false,
		"=https://h:1":          false,
		"a=http://h:1":          false,
		"a=https://h":           false,
		"a=https://:1":          false,
		"a=https://u@h:1":       false,
		"a=https://h:1/metrics": false,
		"a=https://h:1?x=y":     false,
		"A b=https://h:1":       false,
		"a=https://h:1#f":       false,
		"a=://":                 false,
	} {
		if got, err := ParseTarget(text); (err == nil) != ok {
			t.Errorf("%q: got %+v %v, want success: %v", text, got, err, ok)
		}
	}
}

// TestEachAddressIsOneReplica checks that addresses are sorted without duplicates and limited in
// number.
func TestEachAddressIsOneReplica(t *testing.T) {
	many := make([]netip.Addr, 0, 100)
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	lookup := func(_ context.Context, _, host string) ([]netip.Addr, error) {
		switch host {
		case "two":
			return []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("::ffff:10.0.0.1"),
				netip.MustParseAddr("10.0.0.2")}, nil
		case "many":
			return many, nil
		}
		return nil, errors.New("no such host")
	}
	for host, want := range map[string]string{
		"two":      "10.0.0.1:1 10.0.0.2:1",
		"10.1.1.1": "10.1.1.1:1",
		"::1":      "[::1]:1",
		"none":     "find none: no such host",
	} {
		got, err := Target{"s", host, "1"}.lookUpReplicas(t.Context(), lookup)
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%s: got %q, want %q", host, text, want)
		}
	}
	if got, _ := (Target{"s", "many", "1"}).lookUpReplicas(t.Context(), lookup); len(got) != maxReplicas {
		t.Errorf("got %d replicas, want %v", len(got), maxReplicas)
	}
}

// metricsText has each metric that the console shows, and metrics that it ignores.
const metricsText = `# HELP apiserver_request_total requests
# TYPE apiserver_request_total counter
apiserver_request_total{verb="LIST",code="200",resource="pods"} 7
apiserver_request_total{verb="LIST",code="200",resource="nodes"} 3
apiserver_request_total{verb="CREATE",code="403",resource="pods",subresource="exec"} 2
apiserver_request_total{verb="GET",code="404",resource="pods"} 9
apiserver_request_total{verb="GET",code="500",subresource="/readyz"} 4
# TYPE something_else gauge
something_else{a="}{"} 1
# TYPE binnacle_watch_cache_watchers gauge
binnacle_watch_cache_watchers{resource="pods"} 4
binnacle_watch_cache_watchers{resource="nodes"} 1
# TYPE binnacle_watch_delivery_seconds histogram
binnacle_watch_delivery_seconds_bucket{le="0.1"} 5
binnacle_watch_delivery_seconds_bucket{le="1"} 9
binnacle_watch_delivery_seconds_bucket{le="+Inf"} 10
binnacle_watch_delivery_seconds_sum 3
binnacle_watch_delivery_seconds_count 10
# TYPE binnacle_fanout_source gauge
binnacle_fanout_source{source="nats"} 1
binnacle_fanout_source{source="store"} 0
# TYPE binnacle_fanout_publisher gauge
binnacle_fanout_publisher 1
# TYPE binnacle_fanout_lag_seconds gauge
binnacle_fanout_lag_seconds 0.25
# TYPE binnacle_certificate_expiration_timestamp_seconds gauge
binnacle_certificate_expiration_timestamp_seconds{file="/c.crt",use="serving"} 1.8e+09
# TYPE authentication_attempts counter
authentication_attempts{result="failure"} 3
authentication_attempts{result="success"} 8
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# TYPE kubernetes_build_info gauge
kubernetes_build_info{git_version="v1.33.13",major="1"} 1
# TYPE apiserver_request_sli_duration_seconds histogram
apiserver_request_sli_duration_seconds_bucket{verb="GET",le="0.05"} 5
apiserver_request_sli_duration_seconds_bucket{verb="GET",le="+Inf"} 6
apiserver_request_sli_duration_seconds_bucket{verb="LIST",le="0.05"} 1
apiserver_request_sli_duration_seconds_bucket{verb="LIST",le="+Inf"} 4
# TYPE binnacle_etcd_member_up gauge
binnacle_etcd_member_up{endpoint="https://b:2379",storage_cluster_id="etcd-0"} 0
binnacle_etcd_member_up{endpoint="https://a:2379",storage_cluster_id="etcd-0"} 1
# TYPE binnacle_etcd_member_leader gauge
binnacle_etcd_member_leader{endpoint="https://a:2379",storage_cluster_id="etcd-0"} 1
# TYPE binnacle_etcd_member_used_bytes gauge
binnacle_etcd_member_used_bytes{endpoint="https://a:2379",storage_cluster_id="etcd-0"} 300
# TYPE binnacle_etcd_member_quota_bytes gauge
binnacle_etcd_member_quota_bytes{endpoint="https://a:2379",storage_cluster_id="etcd-0"} 1000
# TYPE binnacle_etcd_member_alarm gauge
binnacle_etcd_member_alarm{alarm="NOSPACE",endpoint="https://a:2379",storage_cluster_id="etcd-0"} 1
# TYPE binnacle_fanout_connected gauge
binnacle_fanout_connected 1
# TYPE binnacle_fanout_gaps_total counter
binnacle_fanout_gaps_total{reason="slow_consumer"} 2
binnacle_fanout_gaps_total{reason="history"} 1
# TYPE apiserver_storage_objects gauge
apiserver_storage_objects{resource="pods"} 12
# TYPE binnacle_watch_cache_value_bytes gauge
binnacle_watch_cache_value_bytes{resource="pods"} 4000
# TYPE binnacle_client_requests_total counter
binnacle_client_requests_total{client="user ada"} 41
`

// TestSampleHoldsShownMetrics reads the metrics that the console shows.
func TestSampleHoldsShownMetrics(t *testing.T) {
	var sample Sample
	if err := sample.readMetrics(strings.NewReader(metricsText)); err != nil {
		t.Fatal(err)
	}
	if sample.Requests[Request{"LIST", "200"}] != 10 || sample.Requests[Request{"GET", "500"}] != 0 || sample.Watchers != 5 ||
		sample.Source != "nats" || !sample.Publisher || sample.Leader || sample.LagSeconds != 0.25 || sample.Started != 1.7e9 {
		t.Errorf("got %+v, want 10 LIST requests, 5 watchers, a publisher that is not leader, lag 0.25 s", sample)
	}
	if len(sample.Certificates) != 1 || sample.Certificates[0].Use != "serving" || !sample.Certificates[0].NotAfter.Equal(time.Unix(1.8e9, 0)) {
		t.Errorf("got certificates %+v, want that of serving, valid until %v", sample.Certificates, time.Unix(1.8e9, 0))
	}
	if len(sample.Deliveries) != 3 || sample.Deliveries[2].Count != 10 {
		t.Errorf("got deliveries %+v, want 3 buckets, the last with 10 deliveries", sample.Deliveries)
	}
	want := map[Rejection]float64{
		{"CREATE pods exec", "403: not permitted, or rejected by admission"}: 2,
		{"authentication", "the credentials are not valid"}:                  3,
	}
	if fmt.Sprint(sample.Rejections) != fmt.Sprint(want) {
		t.Errorf("got rejections %v, want %v", sample.Rejections, want)
	}
	members := []Member{
		{
			Cluster:  "etcd-0",
			Endpoint: "https://a:2379",
			Up:       true,
			Leader:   true,
			Used:     300,
			Quota:    1000,
			Alarms:   []string{"NOSPACE"},
		},
		{Cluster: "etcd-0", Endpoint: "https://b:2379"},
	}
	if fmt.Sprint(sample.Members) != fmt.Sprint(members) {
		t.Errorf("got members %+v, want %+v", sample.Members, members)
	}
	if fmt.Sprint(sample.Latencies) != "[{0.05 6} {+Inf 10}]" {
		t.Errorf("got latencies %v, want [{0.05 6} {+Inf 10}]", sample.Latencies)
	}
	if sample.Version != "v1.33.13" || !sample.Connected || sample.SlowConsumers != 2 || sample.Objects["pods"] != 12 ||
		sample.Bytes["pods"] != 4000 || sample.Clients["user ada"] != 41 {
		t.Errorf("got %+v, want v1.33.13, connected, 2 slow consumers, 12 pods of 4000 bytes, 41 requests of ada", sample)
	}
}

// TestEmbeddedEtcdIsTheOnlyMember checks that the metrics of an embedded etcd are shown as one
// member.
func TestEmbeddedEtcdIsTheOnlyMember(t *testing.T) {
	var sample Sample
	text := "# TYPE binnacle_embedded_etcd_quota_bytes gauge\nbinnacle_embedded_etcd_quota_bytes 1000\n# TYPE binnacle_embedded_etcd_used_bytes gauge\nbinnacle_embedded_etcd_used_bytes 900\n" +
		"# TYPE binnacle_embedded_etcd_full gauge\nbinnacle_embedded_etcd_full 1\n# TYPE binnacle_embedded_etcd_disk_free_bytes gauge\nbinnacle_embedded_etcd_disk_free_bytes 7\n"
	if err := sample.readMetrics(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	want := []Member{{Endpoint: "embedded", Up: true, Leader: true, Used: 900, Quota: 1000, Alarms: []string{"NOSPACE"}}}
	if fmt.Sprint(sample.Members) != fmt.Sprint(want) {
		t.Errorf("got members %v, want %v", sample.Members, want)
	}
	if sample.DiskFree != 7 {
		t.Errorf("got %v bytes free, want 7", sample.DiskFree)
	}
}

// TestMalformedOrLargeMetricsAreErrors checks the errors for metrics that are too large or malformed.
func TestMalformedOrLargeMetricsAreErrors(t *testing.T) {
	large := "# TYPE apiserver_request_total counter\n" + strings.Repeat("apiserver_request_total{verb=\"LIST\"} 1\n",
		maxSeries+1)
	for name, test := range map[string]struct{ text, want string }{
		"too many series":      {text: large, want: ErrTooLarge.Error()},
		"a long line":          {text: "apiserver_request_total" + strings.Repeat("x", 2<<20), want: ErrTooLarge.Error()},
		"not a number":         {text: "apiserver_request_total{verb=\"LIST\"} many\n", want: "cannot be read"},
		"truncated":            {text: "apiserver_request_total{verb=\"LI", want: "cannot be read"},
		"empty text":           {text: "", want: ""},
		"text without metrics": {text: "<html>apiserver</html>\n", want: ""},
	} {
		var sample Sample
		if err := sample.readMetrics(strings.NewReader(test.text)); (err == nil) != (test.want == "") ||
			err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

// FuzzMetrics checks that reading metrics does not panic.
func FuzzMetrics(f *testing.F) {
	f.Add(metricsText)
	f.Add("# TYPE apiserver_request_total histogram\napiserver_request_total_bucket{le=\"x\"} 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		var sample Sample
		if err := sample.readMetrics(strings.NewReader(text)); err == nil && (sample.Requests == nil || sample.Rejections == nil) {
			t.Errorf("readMetrics(%q) = nil with requests %v and rejections %v, want an error or both maps",
				text, sample.Requests, sample.Rejections)
		}
	})
}

// TestScrapeReportsUnreachableReplicas checks the errors of replicas that reject the request, have a
// wrong certificate or are not reachable, and of targets that cannot be looked up.
func TestScrapeReportsUnreachableReplicas(t *testing.T) {
	server := func(metricsCode int) string {
		scraper := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/metrics":
				if r.Header.Get("Authorization") != "" {
					t.Errorf("scrape of %s: got Authorization %q, want none", r.URL.Path, r.Header.Get("Authorization"))
				}
				w.WriteHeader(metricsCode)
				fmt.Fprint(w, metricsText)
			case "/readyz":
				w.WriteHeader(http.StatusInternalServerError)
				fmt.Fprint(w, "[+]ping ok\n[-]fan-out failed: reason withheld\n")
			}
		}))
		t.Cleanup(scraper.Close)
		return scraper.Listener.Addr().String()
	}
	healthy, forbidden := server(http.StatusOK), server(http.StatusForbidden)
	unreachable, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unreachable.Close()
	target := func(service, address string) Target {
		host, port, _ := net.SplitHostPort(address)
		return Target{service, host, port}
	}
	// The httptest certificate is valid for example.com only.
	scraper, err := New([]Target{
		target("example.com", healthy), target("example.com", forbidden), target("other", healthy),
		target("example.com", unreachable.Addr().String()), {Service: "example.com", Host: "nowhere.invalid", Port: "1"},
	}, &rest.Config{Host: "https://example.com", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: testCA(t)}})
	if err != nil {
		t.Fatal(err)
	}
	scraper.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }
	samples, missing := scraper.Scrape(t.Context())
	if len(missing) != 1 || missing[0].Service != "example.com" {
		t.Errorf("got missing %v, want only example.com", missing)
	}
	for replica, want := range map[Replica]string{
		{"example.com", healthy}:                     "",
		{"example.com", forbidden}:                   "403 Forbidden",
		{"other", healthy}:                           "x509",
		{"example.com", unreachable.Addr().String()}: "refused",
	} {
		got := samples[replica]
		if got == nil || (got.Err == nil) != (want == "") || got.Err != nil && !strings.Contains(got.Err.Error(), want) {
			t.Errorf("%v: got %+v, want %q", replica, got, want)
			continue
		}
		if want == "" && (got.Ready || !slices.Equal(got.Failing, []string{"fan-out"}) || got.Watchers != 5) {
			t.Errorf("%v: got %+v, want %q", replica, got, want)
		}
	}
}
