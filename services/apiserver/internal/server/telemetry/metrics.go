package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/libs/serving/exchange"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/server/routing"
	"binnacle/services/apiserver/internal/status"
)

// Metrics holds the metrics of requests. They have the names of Kubernetes.
type Metrics struct {
	clients *clientCounts
	// requests returns the metrics in total, duration, sizes and sli by the labels of a request.
	requests *metrics.Series[requestKey, *requestSeries]
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec // of responses
	sli      *prometheus.HistogramVec // duration without waits

	longRunning *metrics.Series[requestKey, prometheus.Gauge]
	inflight    readWriteGauges // running requests
	inqueue     readWriteGauges // requests that wait in flow control
	validation  map[string]prometheus.Observer
	bodySizes   *bodySizes
	// Filters measures the time from the start of a filter until it calls the next one.
	Filters FilterTimes
}

// requestKey holds the labels of the metrics of a request.
type requestKey struct {
	verb, group, version, resource, subresource, scope, component, dryRun string
	code                                                                  int
}

// requestSeries holds the metrics of one combination of labels.
type requestSeries struct {
	total    prometheus.Counter
	duration prometheus.Observer
	size     prometheus.Observer // nil for verbs without response sizes
	sli      prometheus.Observer // nil for watches, whose duration the client chooses
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	labels := []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	withoutDryRun := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}

	// The vectors of finished requests.
	result := &Metrics{
		clients: newClientCounts(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "[STABLE] Requests by verb, resource, scope, component and HTTP response code.",
		}, append(append([]string(nil), labels...), "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "[STABLE] Response latency in seconds by verb, dry run, resource, scope and component.",
			Buckets: append([]float64{0.005, 0.025}, latencyBuckets()...),
		}, labels),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_response_sizes",
			Help:    "[STABLE] Response sizes in bytes by verb, resource, scope and component.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, withoutDryRun),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_sli_duration_seconds",
			Help: "[ALPHA] Response latency in seconds, excluding admission webhooks and queues, " +
				"by verb, resource, scope and component. Excludes watches.",
			Buckets: latencyBuckets(),
		}, withoutDryRun),
	}
	result.requests = metrics.NewSeries(metrics.SeriesConfig[requestKey, *requestSeries]{
		Limit:    maxRequestSeries,
		Add:      result.newSeries,
		Remove:   result.removeSeries,
		Overflow: requestKey.overflowKey,
	})
	result.requests.MustRegister(registerer, result.total, result.duration, result.sizes, result.sli)
	registerer.MustRegister(result.clients)

	// The metrics of running requests, of filters and of bodies.
	result.inflight = newReadWriteGauges(registerer, "apiserver_current_inflight_requests", "[STABLE] Number of running requests by kind.")
	result.inqueue = newReadWriteGauges(
		registerer,
		"apiserver_current_inqueue_requests",
		"[ALPHA] Number of requests queued by flow control, by kind.",
	)
	result.validation = newValidationTimes(registerer)
	result.bodySizes = newBodySizes(registerer)
	result.Filters = newFilterTimes(registerer)
	longRunning := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "apiserver_longrunning_requests",
		Help: "[STABLE] Active long-running requests by verb, resource, scope and component.",
	}, withoutDryRun)
	result.longRunning = metrics.NewSeries(metrics.SeriesConfig[requestKey, prometheus.Gauge]{
		Limit:    maxRequestSeries,
		Overflow: requestKey.overflowKey,
		Add:      func(k requestKey) prometheus.Gauge { return longRunning.WithLabelValues(k.labelsWithoutDryRun()...) },
		Remove:   func(k requestKey) { longRunning.DeleteLabelValues(k.labelsWithoutDryRun()...) },
	})
	result.longRunning.MustRegister(registerer, longRunning)
	return result
}

// InFlight returns the gauge of running requests that read or that mutate, as info does.
func (m *Metrics) InFlight(info *requestinfo.Info) prometheus.Gauge { return m.inflight.gaugeFor(info) }

// Queued returns the gauge of requests in flow control that read or that mutate, as info does.
func (m *Metrics) Queued(info *requestinfo.Info) prometheus.Gauge { return m.inqueue.gaugeFor(info) }

// ObserveBody records the size of a body in bytes. It does nothing unless the resource is served.
func (m *Metrics) ObserveBody(info *requestinfo.Info, size int) { m.bodySizes.observeSize(info, size) }

// Filters holds the dependencies of the filters of this package.
type Filters struct {
	Metrics *Metrics
	Logger  *slog.Logger
	// Slow is the duration from which a request is logged as slow; 0 means half a second.
	Slow time.Duration
	// Traces, if set, creates spans for requests.
	Traces *tracing.Provider
}

// KeepWhileServed removes the series of resources that are not served any more.
func (m *Metrics) KeepWhileServed(kinds *apiset.Live) {
	m.requests.KeepWhile(func() func(requestKey) bool { return isServedIn(kinds.Current()) })
	m.longRunning.KeepWhile(func() func(requestKey) bool { return isServedIn(kinds.Current()) })
	m.bodySizes.KeepWhile(func() func(bodyKey) bool {
		set := kinds.Current()
		return func(k bodyKey) bool {
			return k.resource == "" || set.ServesResource(schema.GroupResource{Group: k.group, Resource: k.resource})
		}
	})
}

// isServedIn returns a function that reports whether the resource of a key is in an API set. A key
// without a resource always is.
func isServedIn(set *apiset.Set) func(requestKey) bool {
	return func(key requestKey) bool {
		return key.resource == "" ||
			set.Resource(schema.GroupVersionResource{Group: key.group, Version: key.version, Resource: key.resource}) != nil
	}
}

const (
	// maxRequestSeries is the maximum number of label sets of request
	// metrics. maxBodySeries is the maximum for body sizes.
	maxRequestSeries = 20_000
	maxBodySeries    = 5000
)

// overflowKey returns the key of requests beyond maxRequestSeries.
func (k requestKey) overflowKey() requestKey {
	return requestKey{verb: "other", component: component, code: k.code}
}

// labelsWithoutDryRun returns the values of all labels except dry_run and code.
func (k requestKey) labelsWithoutDryRun() []string {
	return []string{k.verb, k.group, k.version, k.resource, k.subresource, k.scope, k.component}
}

// labelValues returns the values of all labels except code.
func (k requestKey) labelValues() []string {
	return []string{k.verb, k.dryRun, k.group, k.version, k.resource, k.subresource, k.scope, k.component}
}

// newSeries looks up the metrics of a key.
func (m *Metrics) newSeries(key requestKey) *requestSeries {
	base := key.labelValues()
	series := &requestSeries{
		total:    m.total.WithLabelValues(append(base, strconv.Itoa(key.code))...),
		duration: m.duration.WithLabelValues(base...),
	}
	if key.verb == "GET" || key.verb == "LIST" {
		series.size = m.sizes.WithLabelValues(key.labelsWithoutDryRun()...)
	}
	if key.verb != "WATCH" {
		series.sli = m.sli.WithLabelValues(key.labelsWithoutDryRun()...)
	}
	return series
}

// removeSeries deletes the series of a key. Keys that differ in code or dry run share some of
// them: they name the same resource, so they are removed together.
func (m *Metrics) removeSeries(key requestKey) {
	base := key.labelValues()
	m.total.DeleteLabelValues(append(base, strconv.Itoa(key.code))...)
	m.duration.DeleteLabelValues(base...)
	m.sizes.DeleteLabelValues(key.labelsWithoutDryRun()...)
	m.sli.DeleteLabelValues(key.labelsWithoutDryRun()...)
}

const component = "apiserver"

// WithMetrics records metrics and the access log of requests.
func (f *Filters) WithMetrics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		request.FromContext(r.Context()).Received = start
		info := requestinfo.FromContext(r.Context())
		isOwnWatch := info.LongRunning() && info.Verb == "watch" && info.Delegate == nil
		if isOwnWatch && f.Traces == nil { // a span must end with the handler
			w = exchange.DetachableWriter(w)
		}
		recorder := &exchange.Recorder{ResponseWriter: w}
		key := f.requestKeyOf(r, info)
		uncount := func() {}
		if info.LongRunning() {
			longKey := key
			longKey.dryRun = ""
			running := f.Metrics.longRunning.WithLabels(longKey)
			running.Inc()
			uncount = running.Dec
		}
		defer func() {
			id := ""
			if f.Logger.Enabled(r.Context(), slog.LevelDebug) {
				id = recorder.Header().Get("Audit-Id") // a watch drops its header fields
			}
			exchange.AtEnd(recorder, func(any) {
				uncount()
				f.recordRequest(recorder, r, info, key, start, id)
			})
		}()
		next.ServeHTTP(recorder, r)
	})
}

// recordRequest records metrics and logs of a request whose response has ended.
func (f *Filters) recordRequest(
	recorder *exchange.Recorder,
	r *http.Request,
	info *requestinfo.Info,
	key requestKey,
	start time.Time,
	auditID string,
) {
	// 1. Determine the status code and the duration.
	key.code = recorder.Code
	if key.code == 0 {
		key.code = http.StatusOK
	}
	if key.code >= http.StatusInternalServerError && errors.Is(r.Context().Err(), context.Canceled) {
		key.code = status.ClosedRequest // the client is gone, so this is no server error
	}
	took := time.Since(start)

	// 2. Record the metrics.
	series := f.Metrics.requests.WithLabels(key)
	series.total.Inc()
	if !routing.IsHealth(r.URL.Path) {
		f.Metrics.clients.add(request.Principal(r.Context()))
	}
	series.duration.Observe(took.Seconds())
	if series.size != nil {
		series.size.Observe(float64(recorder.Bytes))
	}
	if series.sli != nil {
		series.sli.Observe((took - request.FromContext(r.Context()).WaitTimes.Sum()).Seconds())
	}
	if info.Target != nil && info.IsWrite() {
		f.Metrics.observeValidation(r, took)
	}

	// 3. Write the log of slow requests and the access log.
	f.logSlow(recorder, r, info, start, took)
	if f.Logger.Enabled(r.Context(), slog.LevelDebug) {
		f.Logger.Debug("HTTP", "verb", key.verb, "uri", r.URL.RequestURI(), "latency", took, "userAgent", r.UserAgent(),
			"audit-ID", auditID, "srcIP", r.RemoteAddr, "resp", key.code, "bytes", recorder.Bytes)
	}
}

// reportedVerbs are the reported names of API verbs.
var reportedVerbs = map[string]string{
	"get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
	"delete": "DELETE", "deletecollection": "DELETECOLLECTION", "proxy": "CONNECT", "head": "GET",
}

// requestKeyOf returns the labels of a request. Paths without a served resource have no labels of a
// resource, so that clients cannot create arbitrary series.
func (f *Filters) requestKeyOf(r *http.Request, info *requestinfo.Info) requestKey {
	key := requestKey{verb: "other", component: component}
	if v, ok := reportedVerbs[info.Verb]; ok {
		key.verb = v
	}
	if !info.IsResource {
		key.subresource, key.component = documentLabels(r.URL.Path)
		return key
	}
	if info.Target == nil {
		return key
	}
	key.group = info.Group
	key.version = info.Version
	key.resource = info.Resource
	key.subresource = info.Subresource
	switch {
	case info.LongRunning() && info.Verb != "watch":
		key.verb = "CONNECT"
	case info.Verb == "patch" && isApply(r):
		key.verb = "APPLY"
	}
	switch {
	case info.Name != "", info.Verb == "create":
		key.scope = "resource"
	case info.Namespace != "":
		key.scope = "namespace"
	default:
		key.scope = "cluster"
	}
	if v, _ := api.Parameter(r.URL.RawQuery, "dryRun"); v == "All" {
		key.dryRun = "All"
	}
	return key
}

// documentLabels returns the labels subresource and component for a path that is no resource. As in
// kube-apiserver, some paths have no component.
func documentLabels(path string) (subresource, componentLabel string) {
	switch {
	case path == "/healthz", path == "/livez", path == "/readyz":
		return path, ""
	case path == "/openapi/v3":
		return "openapi/v3", ""
	case strings.HasPrefix(path, "/openapi/v3/"):
		return "openapi/v3/", ""
	case path == "/api", path == "/apis":
		return path, component
	}
	return "", component
}
