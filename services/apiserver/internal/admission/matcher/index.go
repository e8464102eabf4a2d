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

	mu    sync.Mutex // serializes updates of known; leaf lock
	known atomic.Pointer[map[place][]Candidate[T]]
}

// place holds the parts of a request that rules match.
type place struct {
	kind *registry.Kind
	sub  string
	op   admission.Operation
}

// maxPlaces bounds the cache of an Index. Changed definitions of custom resources leave stale
// places behind.
const maxPlaces = 8192

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
	x.known.Store(&map[place][]Candidate[T]{})
	return x
}

// Len returns the number of entries.
func (x *Index[T]) Len() int { return len(x.entries) }

// Candidates returns the entries whose rules match a request.
func (x *Index[T]) Candidates(r *admission.Request) []Candidate[T] {
	if len(x.entries) == 0 {
		return nil
	}
	at := place{r.Resource, r.Subresource, r.Operation}
	if found, ok := (*x.known.Load())[at]; ok {
		return found
	}
	return x.find(at, r.Kind)
}

// find computes the candidates of a place and caches them.
func (x *Index[T]) find(at place, kind schema.GroupVersionKind) []Candidate[T] {
	var found []Candidate[T]
	var family []*apiset.Resource
	for i := range x.entries {
		e := &x.entries[i]
		if !e.Criterion.exact && family == nil {
			family = x.family(at.kind)
		}
		if m := e.Criterion.find(e.Criterion.rules, at, kind, family); len(m) > 0 {
			found = append(found, Candidate[T]{
				Value: e.Value, criterion: e.Criterion, matches: m, exclude: e.Criterion.find(e.Criterion.exclude, at, kind, family),
			})
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	known := *x.known.Load()
	next := make(map[place][]Candidate[T], len(known)+1)
	if len(known) < maxPlaces {
		maps.Copy(next, known)
	}
	next[at] = found
	x.known.Store(&next)
	return found
}

// find returns the matching rules: first exact matches, then, unless the criterion is exact,
// matches for another version of the resource.
func (c *Criterion) find(rules []rule, at place, kind schema.GroupVersionKind, family []*apiset.Resource) []match {
	var out []match
	for i := range rules {
		if rules[i].matches(at.op, at.kind, at.sub) {
			out = append(out, match{&rules[i], MatchedKind{at.kind.GVR(), kind}})
		}
	}
	if c.exact {
		return out
	}
	for i := range rules {
		for _, other := range family {
			if other.GVR() == at.kind.GVR() || !rules[i].matches(at.op, other.Kind, at.sub) {
				continue
			}
			if as, ok := presentationOf(other, at); ok {
				out = append(out, match{&rules[i], as})
				break
			}
		}
	}
	return out
}

// presentationOf returns the resource and kind of a place in another version of the resource.
func presentationOf(other *apiset.Resource, at place) (MatchedKind, bool) {
	as := MatchedKind{other.GVR(), other.GVK()}
	if at.sub == "" {
		return as, true
	}
	s := other.Subresource(at.sub)
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
