package scrape

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Sample is the state of a replica at one time. Counters count since its start.
type Sample struct {
	Time  time.Time
	Ready bool
	// Failing holds the failing checks of /readyz.
	Failing []string
	// Err is the error of the scrape; the figures are unknown then.
	Err error

	Started, Memory, CPU float64 // seconds since 1970, bytes, seconds
	Requests             map[Request]float64
	Rejections           map[Rejection]float64
	Deliveries           []Bucket
	Watchers, InFlight   float64
	Certificates         []Certificate
	// Source is the source from which an API server receives changes; empty for other services.
	Source                   string
	Publisher, Leader        bool
	LagRevisions, LagSeconds float64

	// Version is the version of Kubernetes that the process serves.
	Version string
	// Latencies counts requests by the time that the server itself took.
	Latencies []Bucket
	// Members are the members of the etcd cluster, as this API server sees them. An embedded etcd
	// is the only member.
	Members []Member
	// DiskSize and DiskFree describe the disk of an embedded etcd, in bytes; 0 if there is none.
	DiskSize, DiskFree float64
	// Connected means that an API server is connected to NATS.
	Connected                  bool
	Disconnects, SlowConsumers float64
	// Objects and Bytes are those that are stored, by resource.
	Objects, Bytes map[string]float64
	// Clients counts the requests of the most active clients.
	Clients map[string]float64
}

// Member is a member of an etcd cluster. Sizes are in bytes, and 0 if unknown.
type Member struct {
	Cluster, Endpoint string
	Up, Leader        bool
	Size, Used, Quota float64
	Alarms            []string
}

// Request is a counted class of requests.
type Request struct{ Verb, Code string }

// Rejection is a counted class of rejections: its subject and its reason.
type Rejection struct{ Subject, Reason string }

// Bucket counts the observations up to a number of seconds.
type Bucket struct{ Seconds, Count float64 }

// Certificate is a certificate that a replica presents or trusts.
type Certificate struct {
	Use, File string
	NotAfter  time.Time
}

// Names of the used metrics.
const (
	requestsTotal = "apiserver_request_total"
	watchers      = "binnacle_watch_cache_watchers"
	deliveries    = "binnacle_watch_delivery_seconds"
	inFlight      = "apiserver_current_inflight_requests"
	source        = "binnacle_fanout_source"
	publisher     = "binnacle_fanout_publisher"
	lagRevisions  = "binnacle_fanout_lag_revisions"
	lagSeconds    = "binnacle_fanout_lag_seconds"
	leader        = "leader_election_master_status"
	certificates  = "binnacle_certificate_expiration_timestamp_seconds"
	started       = "process_start_time_seconds"
	memory        = "process_resident_memory_bytes"
	cpu           = "process_cpu_seconds_total"
	build         = "kubernetes_build_info"
	latencies     = "apiserver_request_sli_duration_seconds_bucket"
	member        = "binnacle_etcd_member_"
	embedded      = "binnacle_embedded_etcd_"
	connected     = "binnacle_fanout_connected"
	disconnects   = "binnacle_fanout_disconnects_total"
	gaps          = "binnacle_fanout_gaps_total"
	objects       = "apiserver_storage_objects"
	objectBytes   = "binnacle_watch_cache_value_bytes"
	clients       = "binnacle_client_requests_total"
)

// wantedFamilies returns the metric families that a Sample uses.
func wantedFamilies() []string {
	out := []string{requestsTotal, watchers, deliveries, inFlight, source, publisher, lagRevisions, lagSeconds,
		leader, certificates, started, memory, cpu, build, connected, disconnects, gaps, objects, objectBytes, clients}
	for _, name := range []string{"up", "leader", "size_bytes", "used_bytes", "quota_bytes", "alarm"} {
		out = append(out, member+name)
	}
	for _, name := range []string{"size_bytes", "used_bytes", "quota_bytes", "full", "disk_size_bytes", "disk_free_bytes"} {
		out = append(out, embedded+name)
	}
	for _, f := range rejectionMetrics() {
		out = append(out, f.metric)
	}
	return out
}

const (
	maxMetrics = 32 << 20 // bytes of a response
	maxSeries  = 20_000   // series used of a response
	maxLabel   = 200      // bytes of the value of a label
)

// ErrTooLarge means that the metrics of a replica exceed the bounds.
var ErrTooLarge = errors.New("the metrics exceed the size limit")

// readMetrics reads the wanted metrics in the text format.
func (s *Sample) readMetrics(r io.Reader) error {
	// 1. Parse the wanted families.
	sums := bucketSums{}
	data, err := filterFamilies(io.LimitReader(r, maxMetrics+1), wantedFamilies(), sums)
	if err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("the metrics cannot be read: %w", err)
	}

	// 2. Read the figures of the process, etcd, NATS, storage and clients.
	s.Latencies = sums.sortedBuckets()
	s.readGauges(families)
	s.readDetails(families)

	// 3. Count requests and rejections. Health probes would outnumber the requests of clients.
	s.Requests = map[Request]float64{}
	s.Rejections = map[Rejection]float64{}
	for _, metric := range families[requestsTotal].GetMetric() {
		if l := labelMap(metric); !isProbe(l) {
			s.Requests[Request{l["verb"], l["code"]}] += sampleValue(metric)
		}
	}
	for _, f := range rejectionMetrics() {
		for _, metric := range families[f.metric].GetMetric() {
			if subject, reason, ok := f.classify(labelMap(metric)); ok {
				s.Rejections[Rejection{subject, reason}] += sampleValue(metric)
			}
		}
	}

	// 4. Read the histogram of deliveries. Its last bucket may be implied by the number of samples.
	for _, metric := range families[deliveries].GetMetric() {
		for _, b := range metric.GetHistogram().GetBucket() {
			s.Deliveries = append(s.Deliveries, Bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
		}
		if n := len(s.Deliveries); n > 0 && !math.IsInf(s.Deliveries[n-1].Seconds, 1) {
			s.Deliveries = append(s.Deliveries, Bucket{math.Inf(1), float64(metric.GetHistogram().GetSampleCount())})
		}
	}
	return nil
}

// readGauges reads the gauges of a scrape.
func (s *Sample) readGauges(families map[string]*dto.MetricFamily) {
	sum := func(name string) (out float64) {
		for _, m := range families[name].GetMetric() {
			out += sampleValue(m)
		}
		return out
	}
	s.Started, s.Memory, s.CPU = sum(started), sum(memory), sum(cpu)
	s.Watchers, s.InFlight = sum(watchers), sum(inFlight)
	s.LagRevisions, s.LagSeconds = sum(lagRevisions), sum(lagSeconds)
	s.Publisher, s.Leader = sum(publisher) > 0, sum(leader) > 0
	for _, m := range families[source].GetMetric() {
		if sampleValue(m) > 0 {
			s.Source = labelMap(m)["source"]
		}
	}
	for _, m := range families[certificates].GetMetric() {
		l := labelMap(m)
		s.Certificates = append(s.Certificates, Certificate{l["use"], l["file"], time.Unix(int64(sampleValue(m)), 0)})
	}
}

// labelMap returns the labels of a series, with long values shortened.
func labelMap(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		v := l.GetValue()
		if len(v) > maxLabel {
			v = v[:maxLabel] + "…"
		}
		out[l.GetName()] = strings.ToValidUTF8(v, "?")
	}
	return out
}

// sampleValue returns the value of a counter, a gauge or an untyped series.
func sampleValue(metric *dto.Metric) float64 {
	switch {
	case metric.GetCounter() != nil:
		return metric.GetCounter().GetValue()
	case metric.GetGauge() != nil:
		return metric.GetGauge().GetValue()
	}
	return metric.GetUntyped().GetValue()
}

// filterFamilies returns the lines of some families, because scanning a line costs less than
// parsing it. The many series of latencies are added to sums instead.
func filterFamilies(r io.Reader, families []string, sums bucketSums) ([]byte, error) {
	var out bytes.Buffer
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	total, series := 0, 0
	for lines.Scan() {
		line := lines.Bytes()
		total += len(line) + 1
		if total > maxMetrics {
			return nil, ErrTooLarge
		}
		name, isType := metricName(line)
		if name == latencies && !isType {
			sums.addLine(line)
			continue
		}
		if !slices.Contains(families, name) && !slices.Contains(families, familyName(name)) {
			continue
		}
		if !isType {
			series++
			if series > maxSeries {
				return nil, ErrTooLarge
			}
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, ErrTooLarge
	}
	return out.Bytes(), lines.Err()
}

// metricName returns the name of the metric in a line with a value or a type. It is empty for help
// lines.
func metricName(line []byte) (name string, isType bool) {
	if typeLine, ok := bytes.CutPrefix(line, []byte("# TYPE ")); ok {
		metric, _, _ := bytes.Cut(typeLine, []byte(" "))
		return string(metric), true
	}
	if end := bytes.IndexAny(line, "{ "); end > 0 && line[0] != '#' {
		return string(line[:end]), false
	}
	return "", false
}

// familyName returns the name of the family to which a series of a histogram belongs.
func familyName(name string) string {
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if b, ok := strings.CutSuffix(name, end); ok {
			return b
		}
	}
	return name
}
