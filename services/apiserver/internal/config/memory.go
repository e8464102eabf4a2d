package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/libs/options"
	bounded "binnacle/libs/quantity"
	"binnacle/services/apiserver/internal/cache/memory"
)

// MemoryOptions bound the memory of caches.
type MemoryOptions struct {
	// Caches bounds all caches together; 0 derives the bound from GOMEMLIMIT.
	Caches quantity
	// History bounds the part of Caches that the watch history may use; 0 means two thirds.
	History quantity
}

func (o *MemoryOptions) addFlags(s *options.Sections) {
	f := s.Set("memory")
	f.Var(&o.Caches, "cache-memory", "Memory for caches: watch history, encoded objects, snapshots of lists and compressed responses. A quantity such as 256Mi. If 0, a quarter of the environment variable GOMEMLIMIT, or 192Mi without it.")
	f.Var(&o.History, "watch-history-memory", "Part of --cache-memory for watch history, which covers at most 5 minutes. If 0, two thirds.")
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
func (b *quantity) Set(s string) error {
	q, err := bounded.Parse(s)
	if err != nil {
		return err
	}
	n, ok := q.AsInt64()
	if !ok || n < 0 {
		return fmt.Errorf("%q is not a number of bytes", s)
	}
	*b = quantity(n)
	return nil
}
