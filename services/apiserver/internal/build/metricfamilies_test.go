package build

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metricFamilies returns the metric families of the server.
func (api *testServer) metricFamilies() map[string]*dto.MetricFamily {
	api.t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	out, err := parser.TextToMetricFamilies(bytes.NewReader(api.mustSend(200, "GET", "/metrics", "").body))
	if err != nil {
		api.t.Fatal(err)
	}
	return out
}

// missing lists the families of Kubernetes that this server lacks, by name or prefix, with reasons.
var missing = map[string]string{
	"workqueue_":               "no part of the server has a work queue",
	"rest_client_exec_plugin_": "client-go measures only the whole process",
	"rest_client_transport_":   "client-go measures only the whole process",
	"grpc_client_":             "only calls of an external etcd are counted",
}

// sometimes lists families that may be absent, by name or prefix, with the condition for their presence.
var sometimes = map[string]string{
	"apiserver_audit_":                    "with an audit log",
	"apiserver_envelope_encryption_":      "with encryption at rest",
	"apiserver_storage_data_key_":         "with encryption at rest",
	"apiserver_storage_envelope_":         "with encryption at rest",
	"serviceaccount_":                     "once a service account token is used",
	"apiserver_flowcontrol_demand_seats_": "after the first adjustment",
	"apiserver_flowcontrol_target_seats":  "after the first adjustment",
	"go_":                                 "depending on the release of Go",
}

// among reports whether a name or one of its prefixes is in a list.
func among(list map[string]string, name string) bool {
	for prefix := range list {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// shapes holds the type, the number of buckets and the labels of families in kube-apiserver.
var shapes = map[string]string{
	"aggregator_discovery_aggregation_count_total":                   "COUNTER",
	"aggregator_unavailable_apiservice":                              "GAUGE name",
	"apiextensions_apiserver_validation_ratcheting_seconds":          "HISTOGRAM 11",
	"apiserver_admission_controller_admission_duration_seconds":      "HISTOGRAM 7 name operation rejected type",
	"apiserver_admission_step_admission_duration_seconds":            "HISTOGRAM 7 operation rejected type",
	"apiserver_admission_step_admission_duration_seconds_summary":    "SUMMARY operation rejected type",
	"apiserver_cache_list_fetched_objects_total":                     "COUNTER index resource_prefix",
	"apiserver_cache_list_returned_objects_total":                    "COUNTER resource_prefix",
	"apiserver_cache_list_total":                                     "COUNTER index resource_prefix",
	"apiserver_cel_compilation_duration_seconds":                     "HISTOGRAM 12",
	"apiserver_cel_evaluation_duration_seconds":                      "HISTOGRAM 12",
	"apiserver_client_certificate_expiration_seconds":                "HISTOGRAM 15",
	"apiserver_current_inflight_requests":                            "GAUGE request_kind",
	"apiserver_current_inqueue_requests":                             "GAUGE request_kind",
	"apiserver_longrunning_requests":                                 "GAUGE component group resource scope subresource verb version",
	"apiserver_request_body_size_bytes":                              "HISTOGRAM 32 resource verb",
	"apiserver_request_duration_seconds":                             "HISTOGRAM 24 component dry_run group resource scope subresource verb version",
	"apiserver_request_filter_duration_seconds":                      "HISTOGRAM 14 filter",
	"apiserver_request_sli_duration_seconds":                         "HISTOGRAM 22 component group resource scope subresource verb version",
	"apiserver_request_timestamp_comparison_time":                    "HISTOGRAM 11 code_path",
	"apiserver_request_total":                                        "COUNTER code component dry_run group resource scope subresource verb version",
	"apiserver_requested_deprecated_apis":                            "GAUGE group removed_release resource subresource version",
	"apiserver_response_sizes":                                       "HISTOGRAM 8 component group resource scope subresource verb version",
	"apiserver_selfrequest_total":                                    "COUNTER resource subresource verb",
	"apiserver_storage_events_received_total":                        "COUNTER resource",
	"apiserver_storage_list_evaluated_objects_total":                 "COUNTER resource",
	"apiserver_storage_list_fetched_objects_total":                   "COUNTER resource",
	"apiserver_storage_list_returned_objects_total":                  "COUNTER resource",
	"apiserver_storage_list_total":                                   "COUNTER resource",
	"apiserver_storage_objects":                                      "GAUGE resource",
	"apiserver_storage_size_bytes":                                   "GAUGE storage_cluster_id",
	"apiserver_tls_handshake_errors_total":                           "COUNTER",
	"apiserver_validation_declarative_validation_mismatch_total":     "COUNTER",
	"apiserver_watch_cache_consistent_read_total":                    "COUNTER fallback resource success",
	"apiserver_watch_cache_read_wait_seconds":                        "HISTOGRAM 14 resource",
	"apiserver_watch_events_sizes":                                   "HISTOGRAM 9 group kind version",
	"apiserver_watch_events_total":                                   "COUNTER group kind version",
	"apiserver_webhooks_x509_insecure_sha1_total":                    "COUNTER",
	"apiserver_webhooks_x509_missing_san_total":                      "COUNTER",
	"authenticated_user_requests":                                    "COUNTER username",
	"authentication_attempts":                                        "COUNTER result",
	"authentication_duration_seconds":                                "HISTOGRAM 16 result",
	"authorization_attempts_total":                                   "COUNTER result",
	"authorization_duration_seconds":                                 "HISTOGRAM 16 result",
	"cardinality_enforcement_unexpected_categorizations_total":       "COUNTER",
	"disabled_metrics_total":                                         "COUNTER",
	"etcd_bookmark_counts":                                           "GAUGE resource",
	"etcd_request_duration_seconds":                                  "HISTOGRAM 24 operation type",
	"etcd_requests_total":                                            "COUNTER operation type",
	"field_validation_request_duration_seconds":                      "HISTOGRAM 22 field_validation",
	"hidden_metrics_total":                                           "COUNTER",
	"kube_apiserver_clusterip_allocator_allocated_ips":               "GAUGE cidr",
	"kube_apiserver_clusterip_allocator_allocation_duration_seconds": "HISTOGRAM 13 cidr",
	"kube_apiserver_clusterip_allocator_allocation_total":            "COUNTER cidr scope",
	"kube_apiserver_clusterip_allocator_available_ips":               "GAUGE cidr",
	"kubernetes_feature_enabled":                                     "GAUGE name stage",
	"pod_security_evaluations_total":                                 "COUNTER decision mode policy_level policy_version request_operation resource subresource",
	"registered_metrics_total":                                       "COUNTER deprecated_version stability_level",
	"rest_client_request_duration_seconds":                           "HISTOGRAM 13 host verb",
	"rest_client_request_size_bytes":                                 "HISTOGRAM 12 host verb",
	"rest_client_requests_total":                                     "COUNTER code host method",
	"rest_client_response_size_bytes":                                "HISTOGRAM 12 host verb",
	"watch_cache_capacity":                                           "GAUGE resource",
}

// shape returns the type, the number of buckets and the labels of a family.
func shape(family *dto.MetricFamily) string {
	metric := family.Metric[0]
	parts := []string{family.GetType().String()}
	if histogram := metric.Histogram; histogram != nil {
		parts = append(parts, fmt.Sprint(len(histogram.Bucket)))
	}
	var labels []string
	for _, label := range metric.Label {
		labels = append(labels, label.GetName())
	}
	slices.Sort(labels)
	return strings.Join(append(parts, labels...), " ")
}

// TestMetricFamiliesOfKubernetes compares the metrics after requests of all kinds with the recorded
// list.
func TestMetricFamiliesOfKubernetes(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	api := startServer(t, onEtcd(t))
	api.sendMeasuredRequests()
	got := api.metricFamilies()
	for line := range strings.Lines(string(recorded)) {
		name, stability, _ := strings.Cut(strings.TrimSpace(line), " ")
		metricFamily := got[name]
		if none := among(missing, name); metricFamily == nil {
			if !none && !among(sometimes, name) {
				t.Errorf("got no metric %s, want it", name)
			}
			continue
		} else if none {
			t.Errorf("got metric %s, want it absent from the list of missing ones", name)
		}
		switch stability {
		case "ALPHA", "BETA", "STABLE":
			stability = "[" + stability + "] "
		case "EXPERIMENTAL:":
			stability += " [ALPHA] "
		default:
			continue // not one of Kubernetes
		}
		if !strings.HasPrefix(metricFamily.GetHelp(), stability) {
			t.Errorf("%s: got help %q, want it to begin with %q", name, metricFamily.GetHelp(), stability)
		}
	}
	for name, want := range shapes {
		if metricFamily := got[name]; metricFamily != nil && shape(metricFamily) != want {
			t.Errorf("%s: got %s, want %s", name, shape(metricFamily), want)
		} else if metricFamily == nil {
			t.Errorf("got no metric %s, want it", name)
		}
	}
}

// TestMetricsCountRequests checks the values after requests of all kinds.
func TestMetricsCountRequests(t *testing.T) {
	t.Parallel()
	api := startServer(t, onEtcd(t))

	// Cause at least one sample of every metric, and one failed TLS handshake.
	api.sendMeasuredRequests()
	if httpResponse, err := http.Get(strings.Replace(api.url, "https", "http", 1)); err == nil {
		httpResponse.Body.Close()
	}
	got := api.metricFamilies()
	count := func(name string, labels ...string) (value float64) {
		for _, metric := range got[name].GetMetric() {
			all := map[string]string{}
			for _, label := range metric.Label {
				all[label.GetName()] = label.GetValue()
			}
			fits := true
			for i := 0; i < len(labels); i += 2 {
				fits = fits && all[labels[i]] == labels[i+1]
			}
			if fits {
				value += metric.Counter.GetValue() + metric.Gauge.GetValue() + float64(metric.Histogram.GetSampleCount())
			}
		}
		return value
	}

	// Each sum over the samples with the labels must be in its range.
	for _, test := range []struct {
		name   string
		labels []string
		least  float64
		most   float64
	}{
		{name: "apiserver_storage_objects", labels: []string{"resource", "pods"}, least: 1, most: 1},
		{name: "apiserver_storage_objects", labels: []string{"resource", "ruled.ex.test"}, least: 1, most: 1},
		{name: "apiserver_storage_events_received_total", labels: []string{"resource", "pods"}, least: 2, most: 2},
		{name: "apiserver_storage_list_total", labels: []string{"resource", "pods"}, least: 1, most: 1},
		{name: "apiserver_storage_size_bytes", labels: []string{"storage_cluster_id", "etcd-0"}, least: 1, most: 1e12},
		{
			name:   "apiserver_request_body_size_bytes",
			labels: []string{"resource", "pods", "verb", "create"},
			least:  1,
			most:   1,
		},
		{name: "apiserver_request_body_size_bytes", labels: []string{"resource", "pods", "verb", "patch"}, least: 2, most: 2},
		{
			name:   "apiserver_request_sli_duration_seconds",
			labels: []string{"resource", "pods", "verb", "POST"},
			least:  1,
			most:   1,
		},
		{name: "apiserver_request_sli_duration_seconds", labels: []string{"verb", "WATCH"}},
		{
			name:   "apiserver_request_timestamp_comparison_time",
			labels: []string{"code_path", "equalObjectsSlow"},
			least:  1,
			most:   1e6,
		},
		{name: "apiserver_request_timestamp_comparison_time", labels: []string{"code_path", "unequalObjectsFast"}, most: 1e6},
		{
			name:   "apiserver_request_filter_duration_seconds",
			labels: []string{"filter", "authentication"},
			least:  8,
			most:   1e6,
		},
		{name: "apiserver_request_filter_duration_seconds", labels: []string{"filter", "authorization"}, least: 8, most: 1e6},
		{
			name:   "apiserver_request_filter_duration_seconds",
			labels: []string{"filter", "priorityandfairness"},
			least:  8,
			most:   1e6,
		},
		{name: "apiserver_request_filter_duration_seconds", labels: []string{"filter", "impersonation"}, least: 8, most: 1e6},
		{name: "apiserver_request_filter_duration_seconds", labels: []string{"filter", "maxinflight"}},
		{name: "apiserver_client_certificate_expiration_seconds", least: 8, most: 1e6},
		{name: "apiserver_tls_handshake_errors_total", least: 1, most: 1},
		{
			name:   "apiserver_selfrequest_total",
			labels: []string{"verb", "POST", "resource", "namespaces"},
			least:  1,
			most:   1e6,
		},
		{
			name:   "field_validation_request_duration_seconds",
			labels: []string{"field_validation", "Strict"},
			least:  1,
			most:   1,
		},
		{name: "apiserver_cel_compilation_duration_seconds", least: 1, most: 1},
		{name: "apiserver_cel_evaluation_duration_seconds", least: 2, most: 2},
		{name: "apiextensions_apiserver_validation_ratcheting_seconds", least: 1, most: 1},
		{name: "rest_client_requests_total", labels: []string{"code", "200", "method", "POST"}, least: 1, most: 1},
		{name: "rest_client_request_size_bytes", labels: []string{"verb", "POST"}, least: 1, most: 1},
		{name: "etcd_requests_total", labels: []string{"operation", "create", "type", "pods"}, least: 1, most: 1},
		{name: "etcd_requests_total", labels: []string{"type", ""}},
		{name: "aggregator_unavailable_apiservice", labels: []string{"name", "v9.ex.test"}, least: 1, most: 1},
		{name: "aggregator_unavailable_apiservice", labels: []string{"name", "v1.apps"}},
	} {
		if value := count(test.name, test.labels...); value < test.least || value > test.most {
			t.Errorf("%s %v: got %v, want %v to %v", test.name, test.labels, value, test.least, test.most)
		}
	}
}

// TestMetricsFlagsLimitMetrics checks disabled metrics and label values that are not allowed.
func TestMetricsFlagsLimitMetrics(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		options.Metrics = optionsFromFlags(t, "--disabled-metrics=apiserver_storage_objects",
			"--allow-metric-labels=apiserver_request_total,code=200").Metrics
	})
	api.get("/nothing")
	got := api.metricFamilies()
	if got["apiserver_storage_objects"] != nil {
		t.Error("got disabled metrics, want none")
	}
	codes := map[string]bool{}
	for _, metric := range got["apiserver_request_total"].GetMetric() {
		for _, label := range metric.Label {
			if label.GetName() == "code" {
				codes[label.GetValue()] = true
			}
		}
	}
	if len(codes) != 2 || !codes["200"] || !codes["unexpected"] {
		t.Errorf("got label values %v, want 200 and unexpected", codes)
	}
	if n := got["disabled_metrics_total"].GetMetric()[0].Counter.GetValue(); n != 1 {
		t.Errorf("got disabled_metrics_total %v, want 1", n)
	}
}

// sendMeasuredRequests sends requests of all kinds.
func (api *testServer) sendMeasuredRequests() {
	api.t.Helper()
	pod := `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	api.mustSend(201, "POST", "/api/v1/namespaces/default/pods?fieldValidation=Strict", pod)
	api.mustSend(200, "PATCH", "/api/v1/namespaces/default/pods/p", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
	api.mustSend(200, "PATCH", "/api/v1/namespaces/default/pods/p", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
	api.mustSend(200, "GET", "/api/v1/componentstatuses", "")
	api.openWatch("/api/v1/namespaces/default/pods?watch=1&resourceVersion=0")
	api.mustSend(201, "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`)
	api.mustSend(201, "POST", definitionsPath,
		`{"metadata":{"name":"ruled.ex.test"},"spec":{"group":"ex.test","scope":"Namespaced","names":{"plural":"ruled","kind":"Ruled"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-validations":[{"rule":"self.n > 0"}],"properties":{"n":{"type":"integer"}}}}}]}}`)
	ruled := "/apis/ex.test/v1/namespaces/default/ruled"
	api.waitUntil("served", func() bool { return api.get(ruled).code == 200 })
	api.mustSend(201, "POST", ruled, `{"apiVersion":"ex.test/v1","kind":"Ruled","metadata":{"name":"r"},"n":1}`)
	api.mustSend(200, "PATCH", ruled+"/r", `{"n":2}`, "Content-Type", mergePatch)
	api.mustSend(201, "POST", apiServicesPath,
		`{"metadata":{"name":"v9.ex.test"},"spec":{"group":"ex.test","version":"v9","groupPriorityMinimum":7,"versionPriority":8,"service":{"namespace":"default","name":"s"}}}`)
	api.waitUntil("checking APIServices", func() bool {
		shown := map[string]bool{}
		for _, m := range api.metricFamilies()["aggregator_unavailable_apiservice"].GetMetric() {
			shown[m.Label[0].GetValue()] = true
		}
		return shown["v9.ex.test"] && shown["v1.apps"] && shown["v1.ex.test"]
	})
	api.createObservedConfigMap()
}

// createObservedConfigMap creates a ConfigMap that a webhook sees.
func (api *testServer) createObservedConfigMap() {
	api.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		_ = json.NewDecoder(r.Body).Decode(&review)
		fmt.Fprintf(w,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`,
			review.Request.UID)
	}))
	api.t.Cleanup(server.Close)
	caBundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: server.Certificate().Raw,
	}))
	api.mustSend(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		fmt.Sprintf(`{"metadata":{"name":"w"},"webhooks":[{"name":"w.ex.test","sideEffects":"None","admissionReviewVersions":["v1"],
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}],"clientConfig":{"url":%q,"caBundle":%q}}]}`, server.URL, caBundle))
	api.mustSend(201, "POST", configMaps, configMap("asked"))
}

// TestHealthChecksAreMeasured checks the metrics of health checks.
func TestHealthChecksAreMeasured(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(200, "GET", "/livez", "")
	text := string(api.mustSend(200, "GET", "/metrics/slis", "").body)
	if want := `kubernetes_healthcheck{name="etcd",type="livez"} 1`; !strings.Contains(text, want) {
		t.Errorf("%s\nhas no %s", text, want)
	}
	if paths := string(api.get("/").body); !strings.Contains(paths, `"/metrics/slis"`) {
		t.Errorf("got paths %s, want /metrics/slis among them", paths)
	}
}
