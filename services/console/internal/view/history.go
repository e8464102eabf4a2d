package view

import (
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"binnacle/services/console/internal/scrape"
)

const (
	// window is how long samples are kept; rates are computed over it.
	window = time.Minute
	// lastSampleAge is how long the last sample of an unreachable replica is kept.
	lastSampleAge = 10 * window
	// maxRejections is the number of rejections that are shown.
	maxRejections = 200
	// p99 is the quantile of latencies that is shown.
	p99 = 0.99
	// seriesAge is how long points are kept, and pointInterval their least distance: the console
	// scrapes more often only while clients view it.
	seriesAge     = 15 * time.Minute
	pointInterval = 14 * time.Second
	// maxCurrentLag is the delay of the change feed up to which a replica counts as current if it
	// has received all changes that it knows of.
	maxCurrentLag = 3 * time.Second
	// maxRows is the number of resources and of clients that are shown.
	maxRows = 15
)

// History keeps the samples of the last minute, and the last rejections.
type History struct {
	mu         sync.Mutex    // leaf lock
	rounds     []sampleRound // oldest first
	rejections []Rejection   // newest last
	series     []Point       // oldest first
	// lastSamples is the last successful sample of each replica. It stays while a replica is
	// unreachable, so that rejections in the meantime are reported afterwards.
	lastSamples map[scrape.Replica]*scrape.Sample
}

// sampleRound holds the samples of all replicas at one time.
type sampleRound struct {
	at      time.Time
	samples map[scrape.Replica]*scrape.Sample
	missing []scrape.MissingTarget
}

// NewHistory returns an empty History.
func NewHistory() *History { return &History{lastSamples: map[scrape.Replica]*scrape.Sample{}} }

// Add adds the samples of all replicas.
func (h *History) Add(at time.Time, samples map[scrape.Replica]*scrape.Sample, missing []scrape.MissingTarget) {
	h.mu.Lock()
	defer h.mu.Unlock()

	// 1. Keep the samples of the last minute.
	h.rounds = append(h.rounds, sampleRound{at, samples, missing})
	h.rounds = slices.DeleteFunc(h.rounds, func(round sampleRound) bool { return round.at.Before(at.Add(-window)) })

	// 2. Compare the counters of each replica with its last sample, and keep the new rejections.
	var newRejections []Rejection
	for replica, sample := range samples {
		if sample.Err != nil {
			continue
		}
		if previous := h.lastSamples[replica]; previous != nil {
			newRejections = append(newRejections, newRejectionsOf(at, replica, previous, sample)...)
		}
		h.lastSamples[replica] = sample
	}
	slices.SortFunc(newRejections, func(a, b Rejection) int {
		return strings.Compare(a.Service+a.Address+a.Subject+a.Reason, b.Service+b.Address+b.Subject+b.Reason)
	})
	h.rejections = append(h.rejections, newRejections...)
	h.rejections = slices.Delete(h.rejections, 0, max(0, len(h.rejections)-maxRejections))

	// 3. Add a point to the series if the last one is old enough.
	if n := len(h.series); n == 0 || at.Sub(h.series[n-1].Time) >= pointInterval {
		h.series = append(h.series, h.newPoint(at, samples))
		h.series = slices.DeleteFunc(h.series, func(p Point) bool { return p.Time.Before(at.Add(-seriesAge)) })
	}

	// 4. Forget replicas that have been unreachable for long.
	maps.DeleteFunc(h.lastSamples, func(_ scrape.Replica, sample *scrape.Sample) bool { return sample.Time.Before(at.Add(-lastSampleAge)) })
}

// newRejectionsOf returns the rejections between two samples of a replica.
func newRejectionsOf(at time.Time, replica scrape.Replica, previous, current *scrape.Sample) (out []Rejection) {
	for class, n := range current.Rejections {
		if increase := n - counterBase(previous, current)*previous.Rejections[class]; increase > 0 {
			out = append(out, Rejection{
				Time:    at,
				Service: replica.Service,
				Address: replica.Address,
				Subject: class.Subject,
				Reason:  class.Reason,
				Count:   increase,
			})
		}
	}
	return out
}

// counterBase returns the factor for the counters of previous in a difference of counters: 1 if
// both samples are of the same process, so that the counters of current continue them, and
// otherwise 0. previous may be nil.
func counterBase(previous, current *scrape.Sample) float64 {
	if previous == nil || previous.Started != current.Started {
		return 0
	}
	return 1
}

// State returns the current state, and false if there is none.
func (h *History) State() (State, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.rounds) == 0 {
		return State{}, false
	}

	// 1. Fill in the figures that need no computation per replica.
	last, first := h.rounds[len(h.rounds)-1], h.rounds[0]
	out := State{
		Time: last.at, Seconds: last.at.Sub(first.at).Seconds(),
		Replicas: []Replica{}, Requests: []Rate{}, Certificates: []Certificate{}, Rejections: slices.Clone(h.rejections),
		Etcd:      etcdMembers(last.samples),
		Resources: largestResources(last.samples),
		Clients:   h.mostActiveClients(last.samples),
		Series:    slices.Clone(h.series),
	}
	slices.Reverse(out.Rejections)
	if out.Rejections == nil {
		out.Rejections = []Rejection{}
	}
	for _, m := range last.missing {
		out.Missing = append(out.Missing, MissingService{m.Service, m.Err.Error()})
	}

	// 2. Collect the replicas, and the rates and certificates of all of them.
	rates := map[scrape.Request]*Rate{}
	certificates := map[Certificate]bool{}
	for replica, sample := range last.samples {
		earliest := h.oldestSample(replica)
		out.Replicas = append(out.Replicas, newReplica(replica, earliest, sample))
		if sample.Err != nil {
			continue
		}
		addRates(rates, earliest, sample)
		for _, c := range sample.Certificates {
			certificates[Certificate{replica.Service, c.Use, c.File, c.NotAfter.UTC()}] = true
		}
	}

	// 3. Sort, so that the page does not change without reason.
	slices.SortFunc(out.Replicas, func(a, b Replica) int {
		return strings.Compare(a.Service+" "+a.Address, b.Service+" "+b.Address)
	})
	for _, rate := range rates {
		out.Requests = append(out.Requests, *rate)
	}
	slices.SortFunc(out.Requests, func(a, b Rate) int { return strings.Compare(a.Verb+" "+a.Code, b.Verb+" "+b.Code) })
	for c := range certificates {
		out.Certificates = append(out.Certificates, c)
	}
	sort.Slice(out.Certificates, func(i, j int) bool {
		a, b := out.Certificates[i], out.Certificates[j]
		if !a.Ends.Equal(b.Ends) {
			return a.Ends.Before(b.Ends)
		}
		return a.Service+a.Use+a.File < b.Service+b.Use+b.File
	})
	return out, true
}

// oldestSample returns the oldest sample of a replica with figures, or nil if the last one is the
// only one.
func (h *History) oldestSample(r scrape.Replica) *scrape.Sample {
	for _, round := range h.rounds[:len(h.rounds)-1] {
		if s := round.samples[r]; s != nil && s.Err == nil {
			return s
		}
	}
	return nil
}

// rateSeconds returns the time between two samples of the same process, in seconds, and 0
// otherwise.
func rateSeconds(previous, current *scrape.Sample) float64 {
	if counterBase(previous, current) == 0 {
		return 0
	}
	return current.Time.Sub(previous.Time).Seconds()
}

// addRates adds the requests of a replica to the rates of their classes. previous is an earlier
// sample, or nil.
func addRates(rates map[scrape.Request]*Rate, previous, current *scrape.Sample) {
	seconds := rateSeconds(previous, current)
	for class, n := range current.Requests {
		if rates[class] == nil {
			rates[class] = &Rate{Verb: class.Verb, Code: class.Code}
		}
		rates[class].Total += n
		if seconds > 0 {
			rates[class].PerSecond += max(0, n-previous.Requests[class]) / seconds
		}
	}
}

// newReplica returns the state of a replica. Rates compare the sample with an earlier one.
func newReplica(r scrape.Replica, previous, sample *scrape.Sample) Replica {
	out := Replica{Service: r.Service, Address: r.Address, Ready: sample.Ready, Failing: sample.Failing}
	if sample.Err != nil {
		out.Error = sample.Err.Error()
		return out
	}

	// 1. Figures of all services.
	out.Publisher = sample.Publisher
	out.Leader = sample.Leader
	out.Source = sample.Source
	out.Memory = sample.Memory
	if sample.Started > 0 {
		started := time.Unix(int64(sample.Started), 0).UTC()
		out.Started = &started
	}
	out.Version = sample.Version
	out.DiskSize = sample.DiskSize
	out.DiskFree = sample.DiskFree
	seconds := rateSeconds(previous, sample)
	if seconds > 0 {
		cpus := max(0, sample.CPU-previous.CPU) / seconds
		out.CPU = &cpus
	}

	// 2. Figures of API servers, which alone have a source of changes.
	if sample.Source == "" {
		return out
	}
	lagSeconds := feedLag(sample)
	out.NATS = &NATS{sample.Connected, sample.Disconnects, sample.SlowConsumers}
	out.LagRevisions = &sample.LagRevisions
	out.LagSeconds = &lagSeconds
	out.Watchers = &sample.Watchers
	out.InFlight = &sample.InFlight
	if seconds > 0 {
		perSecond := 0.0
		for class, n := range sample.Requests {
			perSecond += max(0, n-previous.Requests[class]) / seconds
		}
		out.Requests = &perSecond
		if class, ok := quantile(p99, previous.Deliveries, sample.Deliveries); ok {
			out.DeliveryP99 = &class
		}
	}
	return out
}

// quantile returns the quantile of the observations between two states of a histogram, as in
// Prometheus: linear within a bucket, and the last bound for observations beyond it.
func quantile(q float64, previous, current []scrape.Bucket) (float64, bool) {
	if len(current) == 0 || len(previous) != len(current) {
		return 0, false
	}
	count := func(i int) float64 { return current[i].Count - previous[i].Count }
	last := len(current) - 1
	total := count(last)
	if total <= 0 {
		return 0, false
	}
	rank := q * total
	for i := range current {
		if count(i) < rank {
			continue
		}
		if math.IsInf(current[i].Seconds, 1) {
			if i == 0 {
				return 0, false
			}
			return current[i-1].Seconds, true
		}
		lower, lowerCount := 0.0, 0.0
		if i > 0 {
			lower, lowerCount = current[i-1].Seconds, count(i-1)
		}
		return lower + (current[i].Seconds-lower)*(rank-lowerCount)/(count(i)-lowerCount), true
	}
	return 0, false
}
