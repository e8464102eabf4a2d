package config

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/libs/options"
	bounded "binnacle/libs/quantity"
	"binnacle/services/apiserver/internal/cache/memory"
)

// RequestOptions configure how requests are limited and processed.
type RequestOptions struct {
	// MinRequestTimeout is the minimum duration of a watch in seconds.
	MinRequestTimeout int
	// MaxInFlight and MaxMutatingInFlight are the maximum numbers of concurrent reads and writes; 0
	// for no limit.
	MaxInFlight, MaxMutatingInFlight int
	PriorityAndFairness              bool
	// AllowedOrigins are regular expressions of the origins that CORS allows.
	AllowedOrigins []string
	// GoawayChance is the probability, from 0 to 0.02, that a request closes its HTTP/2 connection.
	GoawayChance float64
	// HSTS holds the directives of the Strict-Transport-Security header.
	HSTS     []string
	EventTTL time.Duration
	// GarbageCollector leaves the dependents of deleted objects to the garbage collector.
	GarbageCollector        bool
	DeleteCollectionWorkers int
}

func newRequestOptions() RequestOptions {
	return RequestOptions{
		MinRequestTimeout:       1800,
		MaxInFlight:             400,
		MaxMutatingInFlight:     200,
		PriorityAndFairness:     true,
		EventTTL:                time.Hour,
		GarbageCollector:        true,
		DeleteCollectionWorkers: 1,
	}
}

func (o *RequestOptions) addFlags(generic, misc *pflag.FlagSet) {
	generic.IntVar(&o.MinRequestTimeout, "min-request-timeout", o.MinRequestTimeout,
		"Minimum number of seconds for which a watch without timeoutSeconds is kept open. It ends at a random time between this value and twice the value.")
	generic.IntVar(&o.MaxInFlight, "max-requests-inflight", o.MaxInFlight,
		"The maximum number of non-mutating requests in flight at a time; 0 for no limit. With --enable-priority-and-fairness the sum of both limits is shared by the priority levels.")
	generic.IntVar(&o.MaxMutatingInFlight, "max-mutating-requests-inflight", o.MaxMutatingInFlight,
		"The maximum number of mutating requests in flight at a time; 0 for no limit.")
	generic.BoolVar(&o.PriorityAndFairness, "enable-priority-and-fairness", true,
		"Limit requests in flight by FlowSchemas and PriorityLevelConfigurations, with fair queuing.")
	generic.StringSliceVar(&o.AllowedOrigins, "cors-allowed-origins", nil,
		"Comma-separated regular expressions of allowed origins for CORS. Each must be anchored to the start of the host by '^' or '//' and to its end by '$' or ':'. If empty, CORS is disabled.")
	generic.Float64Var(&o.GoawayChance, "goaway-chance", 0,
		"Probability that a request closes its HTTP/2 connection with GOAWAY, so that clients reconnect to other replicas. From 0 to 0.02.")
	generic.StringSliceVar(&o.HSTS, "strict-transport-security-directives", nil,
		"Comma-separated directives of the Strict-Transport-Security header. If empty, the header is not sent.")
	generic.IntVar(&o.DeleteCollectionWorkers, "delete-collection-workers", 1, "Number of workers of a deletecollection request.")
	generic.BoolVar(&o.GarbageCollector, "enable-garbage-collector", true,
		"Let the garbage collector handle dependents. Must match the flag of kube-controller-manager.")
	misc.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "Time to retain events.")
}

// MaxPerServer returns the maximum number of concurrent requests to one extension server or peer: a
// quarter of all requests in flight. 0 means no limit.
func (o *RequestOptions) MaxPerServer() int {
	all := o.MaxInFlight + o.MaxMutatingInFlight
	if all <= 0 {
		return 0
	}
	return max(1, all/4)
}

// MemoryOptions bound the memory of caches.
type MemoryOptions struct {
	// Caches is the maximum size of all caches together in bytes; 0 derives it from GOMEMLIMIT.
	Caches quantity
	// History is the part of Caches that the watch history may use in bytes; 0 means two thirds.
	History quantity
}

func (o *MemoryOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("memory")
	flagSet.Var(&o.Caches, "cache-memory",
		"Memory for caches: watch history, encoded objects, snapshots of lists and compressed responses. A quantity such as 256Mi. If 0, a quarter of the environment variable GOMEMLIMIT, or 192Mi without it.")
	flagSet.Var(&o.History, "watch-history-memory",
		"Part of --cache-memory for watch history, which covers at most 5 minutes. If 0, two thirds.")
}

func (o *MemoryOptions) validate() (errs []error) {
	if limit := memory.Limit(int64(o.Caches)); int64(o.History) > limit {
		all := quantity(limit)
		errs = append(errs, fmt.Errorf("--watch-history-memory %s exceeds --cache-memory, which is %s", &o.History, &all))
	}
	return errs
}

// quantity is a flag whose value is a number of bytes, written as a Kubernetes quantity.
type quantity int64

// String implements pflag.Value.
func (b *quantity) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Type implements pflag.Value.
func (b *quantity) Type() string { return "quantity" }

// Set implements pflag.Value.
func (b *quantity) Set(text string) error {
	q, err := bounded.Parse(text)
	if err != nil {
		return err
	}
	n, ok := q.AsInt64()
	if !ok || n < 0 {
		return fmt.Errorf("%q is not a number of bytes", text)
	}
	*b = quantity(n)
	return nil
}
