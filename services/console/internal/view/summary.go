package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"binnacle/services/console/internal/scrape"
)

// feedLag returns how far an API server is behind the change feed, in seconds. The time since the
// last heartbeat of the feed does not count while no change is missing.
func feedLag(sample *scrape.Sample) float64 {
	if sample.LagRevisions == 0 && sample.LagSeconds < maxCurrentLag.Seconds() {
		return 0
	}
	return sample.LagSeconds
}

// newPoint summarizes the samples of a time.
func (h *History) newPoint(at time.Time, samples map[scrape.Replica]*scrape.Sample) Point {
	point := Point{Time: at}
	var previous, current []scrape.Bucket
	for replica, sample := range samples {
		if sample.Err != nil {
			continue
		}
		point.Memory += sample.Memory
		point.Watchers += sample.Watchers
		point.Lag = max(point.Lag, feedLag(sample))
		for _, m := range sample.Members {
			point.EtcdSize = max(point.EtcdSize, m.Size)
		}
		earliest := h.oldestSample(replica)
		seconds := rateSeconds(earliest, sample)
		if seconds == 0 {
			continue
		}
		for q, n := range sample.Requests {
			point.Requests += max(0, n-earliest.Requests[q]) / seconds
		}
		if len(earliest.Latencies) == len(sample.Latencies) {
			previous, current = addBuckets(previous, earliest.Latencies), addBuckets(current, sample.Latencies)
		}
	}
	point.LatencyP99, _ = quantile(p99, previous, current)
	return point
}

// addBuckets adds histogram b to a and returns the sum. Both have the same bounds; a may be nil.
func addBuckets(a, b []scrape.Bucket) []scrape.Bucket {
	if a == nil {
		return slices.Clone(b)
	}
	for i := range min(len(a), len(b)) {
		a[i].Count += b[i].Count
	}
	return a
}

// etcdMembers returns the members of etcd, as the API servers see them. A member that one of them
// reaches is up.
func etcdMembers(samples map[scrape.Replica]*scrape.Sample) []EtcdMember {
	found := map[[2]string]EtcdMember{}
	for replica, s := range samples {
		for _, member := range s.Members {
			if member.Cluster == "" {
				member.Endpoint = replica.Address + " (" + member.Endpoint + ")"
			}
			id := [2]string{member.Cluster, member.Endpoint}
			if old, ok := found[id]; ok && (old.Up || !member.Up) {
				continue
			}
			found[id] = EtcdMember{member.Cluster, member.Endpoint, member.Up, member.Leader, member.Size, member.Used, member.Quota, member.Alarms}
		}
	}
	out := slices.AppendSeq([]EtcdMember{}, maps.Values(found))
	slices.SortFunc(out, func(a, b EtcdMember) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return out
}

// largestResources returns the resources that use the most storage. Each API server has all of
// them.
func largestResources(samples map[scrape.Replica]*scrape.Sample) []Resource {
	found := map[string]Resource{}
	for _, sample := range samples {
		for name, n := range sample.Objects {
			r := found[name]
			found[name] = Resource{name, max(r.Objects, n), max(r.Bytes, sample.Bytes[name])}
		}
	}
	out := []Resource{}
	for _, r := range found {
		if r.Objects > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Objects, a.Objects), cmp.Compare(a.Resource, b.Resource))
	})
	return out[:min(len(out), maxRows)]
}

// mostActiveClients returns the most active clients of all API servers.
func (h *History) mostActiveClients(samples map[scrape.Replica]*scrape.Sample) []Client {
	found := map[string]Client{}
	for r, sample := range samples {
		earliest := h.oldestSample(r)
		seconds := rateSeconds(earliest, sample)
		var previous map[string]float64
		if seconds > 0 {
			previous = earliest.Clients
		}
		for name, n := range sample.Clients {
			client := found[name]
			client.Client = name
			client.Total = client.Total + n
			// A client that had no counter before may have had requests.
			if before, ok := previous[name]; ok {
				client.PerSecond += max(0, n-before) / seconds
			}
			found[name] = client
		}
	}
	out := slices.AppendSeq([]Client{}, maps.Values(found))
	slices.SortFunc(out, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Client, b.Client))
	})
	return out[:min(len(out), maxRows)]
}
