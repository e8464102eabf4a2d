package scrape

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
)

// bucketSums holds the sums of a histogram's buckets over all series, by upper bound in seconds.
type bucketSums map[float64]float64

// addLine adds the value of a line of the text format. It ignores lines that it cannot parse.
func (b bucketSums) addLine(line []byte) {
	_, afterBound, ok := bytes.Cut(line, []byte(`le="`))
	if !ok {
		return
	}
	bound, afterBound, _ := bytes.Cut(afterBound, []byte(`"`))
	_, value, _ := bytes.Cut(afterBound, []byte("} "))
	seconds, err := strconv.ParseFloat(string(bound), 64)
	if err != nil {
		return
	}
	if n, err := strconv.ParseFloat(string(value), 64); err == nil {
		b[seconds] += n
	}
}

// sortedBuckets returns the buckets by upper bound.
func (b bucketSums) sortedBuckets() (out []Bucket) {
	for _, seconds := range slices.Sorted(maps.Keys(b)) {
		out = append(out, Bucket{seconds, b[seconds]})
	}
	return out
}

// readDetails reads the figures of etcd, NATS, storage and clients.
func (s *Sample) readDetails(families map[string]*dto.MetricFamily) {
	for _, m := range families[build].GetMetric() {
		s.Version = labelMap(m)["git_version"]
	}
	sumBy := func(name, label string) map[string]float64 {
		out := map[string]float64{}
		for _, m := range families[name].GetMetric() {
			out[labelMap(m)[label]] += sampleValue(m)
		}
		return out
	}
	lastValue := func(name string) (out float64) {
		for _, m := range families[name].GetMetric() {
			out = sampleValue(m)
		}
		return out
	}
	s.Objects, s.Bytes, s.Clients = sumBy(objects, "resource"), sumBy(objectBytes, "resource"), sumBy(clients, "client")
	s.Connected = lastValue(connected) > 0
	s.Disconnects = lastValue(disconnects)
	s.SlowConsumers = sumBy(gaps, "reason")["slow_consumer"]
	s.DiskSize, s.DiskFree = lastValue(embedded+"disk_size_bytes"), lastValue(embedded+"disk_free_bytes")
	if quota := lastValue(embedded + "quota_bytes"); quota > 0 {
		embeddedMember := Member{
			Endpoint: "embedded",
			Up:       true,
			Leader:   true,
			Size:     lastValue(embedded + "size_bytes"),
			Used:     lastValue(embedded + "used_bytes"),
			Quota:    quota,
		}
		if lastValue(embedded+"full") > 0 {
			embeddedMember.Alarms = []string{"NOSPACE"}
		}
		s.Members = []Member{embeddedMember}
	}
	s.readMembers(families)
}

// readMembers reads the members of an etcd cluster.
func (s *Sample) readMembers(families map[string]*dto.MetricFamily) {
	found := map[[2]string]*Member{} // by cluster and endpoint
	eachSeries := func(name string, use func(*Member, float64, map[string]string)) {
		for _, m := range families[member+name].GetMetric() {
			labels := labelMap(m)
			id := [2]string{labels["storage_cluster_id"], labels["endpoint"]}
			if found[id] == nil {
				found[id] = &Member{Cluster: id[0], Endpoint: id[1]}
			}
			use(found[id], sampleValue(m), labels)
		}
	}
	eachSeries("up", func(m *Member, v float64, _ map[string]string) { m.Up = v > 0 })
	eachSeries("leader", func(m *Member, v float64, _ map[string]string) { m.Leader = v > 0 })
	eachSeries("size_bytes", func(m *Member, v float64, _ map[string]string) { m.Size = v })
	eachSeries("used_bytes", func(m *Member, v float64, _ map[string]string) { m.Used = v })
	eachSeries("quota_bytes", func(m *Member, v float64, _ map[string]string) { m.Quota = v })
	eachSeries("alarm", func(m *Member, v float64, labels map[string]string) {
		if v > 0 {
			m.Alarms = append(m.Alarms, labels["alarm"])
		}
	})
	for _, m := range found {
		slices.Sort(m.Alarms)
		s.Members = append(s.Members, *m)
	}
	slices.SortFunc(s.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Endpoint, b.Endpoint))
	})
}
