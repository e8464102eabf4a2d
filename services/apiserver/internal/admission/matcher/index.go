package matcher

import (
	"maps"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/registry"
)

// Family returns the versions in which a resource is served, including the given one.
type Family func(*registry.Kind) []*apiset.Resource

// Entry is a value with its criterion.
type Entry[T any] struct {
	Criterion *Criterion
	Value     T
}

// Index finds the entries that may apply to a request.
type Index[T any] struct {
	entries []Entry[T]
	family  Family

	mu    sync.Mutex // serializes updates of cache; leaf lock
	cache atomic.Pointer[map[requestKey][]Candidate[T]]
}

// requestKey holds the parts of a request that rules match.
type requestKey struct {
	kind        *registry.Kind
	subresource string
	operation   admission.Operation
	// namespaced is false for a request for objects of all namespaces, too.
	namespaced bool
}

func keyOf(r *admission.Request) requestKey {
	return requestKey{kind: r.Resource, subresource: r.Subresource, operation: r.Operation, namespaced: r.Resource.Namespaced && r.Namespace != ""}
}

// maxCached is the maximum number of cached keys of an Index. Changed definitions of custom resources
// leave stale keys behind.
const maxCached = 8192

// Candidate is an entry with at least one matching rule.
type Candidate[T any] struct {
	Value     T
	criterion *Criterion
	// matches holds the matching rules in order. The first one that matches the name counts.
	matches []match
	exclude []match
}

// match is a matching rule, and the resource and kind as which the request matches it.
type match struct {
	rule *rule
	as   MatchedKind
}

// MatchedKind is the resource and kind in which a request is presented to the webhook or policy.
type MatchedKind struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
}

// NewIndex returns an index. Candidates are in the order of entries.
func NewIndex[T any](family Family, entries []Entry[T]) *Index[T] {
	x := &Index[T]{entries: entries, family: family}
	x.cache.Store(&map[requestKey][]Candidate[T]{})
	return x
}

// Len returns the number of entries.
func (x *Index[T]) Len() int { return len(x.entries) }

// Candidates returns the entries whose rules match a request.
func (x *Index[T]) Candidates(r *admission.Request) []Candidate[T] {
	if len(x.entries) == 0 {
		return nil
	}
	key := keyOf(r)
	if found, ok := (*x.cache.Load())[key]; ok {
		return found
	}
	return x.find(key, r.Kind)
}

// find computes the candidates for a key and caches them.
func (x *Index[T]) find(key requestKey, kind schema.GroupVersionKind) []Candidate[T] {
	var found []Candidate[T]
	var family []*apiset.Resource
	for i := range x.entries {
		e := &x.entries[i]
		if !e.Criterion.exact && family == nil {
			family = x.family(key.kind)
		}
		if m := e.Criterion.matching(e.Criterion.rules, key, kind, family); len(m) > 0 {
			found = append(found, Candidate[T]{
				Value: e.Value, criterion: e.Criterion, matches: m, exclude: e.Criterion.matching(e.Criterion.exclude, key, kind, family),
			})
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	cached := *x.cache.Load()
	next := make(map[requestKey][]Candidate[T], len(cached)+1)
	if len(cached) < maxCached {
		maps.Copy(next, cached)
	}
	next[key] = found
	x.cache.Store(&next)
	return found
}

// matching returns the matching rules: first exact matches, then, unless the criterion is exact,
// matches for another version of the resource.
func (c *Criterion) matching(rules []rule, key requestKey, kind schema.GroupVersionKind, family []*apiset.Resource) []match {
	var out []match
	for i := range rules {
		if rules[i].matches(key, key.kind) {
			out = append(out, match{&rules[i], MatchedKind{key.kind.GVR(), kind}})
		}
	}
	if c.exact {
		return out
	}
	for i := range rules {
		for _, other := range family {
			if other.GVR() == key.kind.GVR() || !rules[i].matches(key, other.Kind) {
				continue
			}
			if as, ok := presentationOf(other, key); ok {
				out = append(out, match{&rules[i], as})
				break
			}
		}
	}
	return out
}

// presentationOf returns the resource and kind in which a request is presented in another version of
// its resource. It returns false if that version lacks the subresource.
func presentationOf(other *apiset.Resource, key requestKey) (MatchedKind, bool) {
	as := MatchedKind{other.GVR(), other.GVK()}
	if key.subresource == "" {
		return as, true
	}
	s := other.Subresource(key.subresource)
	if s == nil {
		return as, false
	}
	switch {
	case s.GVK.Kind == "":
	case s.GVK.Version == "":
		as.Kind = other.GroupVersion().WithKind(s.GVK.Kind)
	default:
		as.Kind = s.GVK
	}
	return as, true
}
