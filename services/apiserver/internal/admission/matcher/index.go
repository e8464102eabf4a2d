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

// Family returns all versions in which the resource of a kind is served, including the given one.
type Family func(*registry.Kind) []*apiset.Resource

// Entry is a value, such as a webhook, with the criteria that a request must meet.
type Entry[T any] struct {
	Criteria *CompiledCriteria
	Value    T
}

// Index finds the entries that may apply to a request. It matches the rules of all entries once per
// requestKey and caches the result. It is safe for concurrent use.
type Index[T any] struct {
	entries []Entry[T]
	family  Family

	mu    sync.Mutex // serializes updates of cache; leaf lock
	cache atomic.Pointer[map[requestKey][]Candidate[T]]
}

// requestKey holds the parts of a request that rules match, except for the name.
type requestKey struct {
	kind        *registry.Kind
	subresource string
	operation   admission.Operation
	// namespaced reports whether the request has a namespace. It is false for cluster-scoped
	// resources and for requests across all namespaces.
	namespaced bool
}

func requestKeyOf(r *admission.Request) requestKey {
	return requestKey{
		kind: r.Resource, subresource: r.Subresource, operation: r.Operation,
		namespaced: r.Resource.Namespaced && r.Namespace != "",
	}
}

// maxCached is the number of cached keys at which an Index clears its cache. The limit is needed
// because a changed definition of a custom resource leaves keys behind that no request uses again.
const maxCached = 8192

// Candidate is an entry with at least one rule that matches a request, apart from the rule's names.
// Selects applies the names and the selectors.
type Candidate[T any] struct {
	Value    T
	criteria *CompiledCriteria
	// matches holds the matching rules. The first one whose names include the request's name
	// determines the MatchedKind.
	matches []match
	// exclude holds the matching exclusion rules.
	exclude []match
}

// match is a rule that matches a request. matchedKind is the version of the request's resource that
// the rule matched.
type match struct {
	rule        *rule
	matchedKind MatchedKind
}

// MatchedKind is the version in which a webhook or policy sees a request. Under the match policy
// Equivalent, it may differ from the version that the client used.
type MatchedKind struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
}

// NewIndex returns an index of entries. Index.Candidates returns them in the same order.
func NewIndex[T any](family Family, entries []Entry[T]) *Index[T] {
	index := &Index[T]{entries: entries, family: family}
	index.cache.Store(&map[requestKey][]Candidate[T]{})
	return index
}

// Len returns the number of entries.
func (index *Index[T]) Len() int { return len(index.entries) }

// Candidates returns the entries whose rules match a request. Callers must not change the result,
// which is cached.
func (index *Index[T]) Candidates(r *admission.Request) []Candidate[T] {
	if len(index.entries) == 0 {
		return nil
	}
	key := requestKeyOf(r)
	if found, ok := (*index.cache.Load())[key]; ok {
		return found
	}
	return index.computeCandidates(key, r.Kind)
}

// computeCandidates returns the candidates for a key and caches them.
func (index *Index[T]) computeCandidates(key requestKey, kind schema.GroupVersionKind) []Candidate[T] {
	var found []Candidate[T]
	var family []*apiset.Resource
	for i := range index.entries {
		entry := &index.entries[i]
		if !entry.Criteria.exact && family == nil {
			family = index.family(key.kind)
		}
		if matches := entry.Criteria.matchingRules(entry.Criteria.rules, key, kind, family); len(matches) > 0 {
			found = append(found, Candidate[T]{
				Value: entry.Value, criteria: entry.Criteria, matches: matches,
				exclude: entry.Criteria.matchingRules(entry.Criteria.exclude, key, kind, family),
			})
		}
	}
	index.mu.Lock()
	defer index.mu.Unlock()
	cached := *index.cache.Load()
	next := make(map[requestKey][]Candidate[T], len(cached)+1)
	if len(cached) < maxCached {
		maps.Copy(next, cached)
	}
	next[key] = found
	index.cache.Store(&next)
	return found
}

// matchingRules returns the rules that match key: first the rules that match the requested version,
// then, unless the criteria are exact, the rules that match another version in family. kind is the
// kind of the request's object.
func (c *CompiledCriteria) matchingRules(
	rules []rule,
	key requestKey,
	kind schema.GroupVersionKind,
	family []*apiset.Resource,
) []match {
	var out []match
	for i := range rules {
		if rules[i].matches(key, key.kind) {
			out = append(out, match{rule: &rules[i], matchedKind: MatchedKind{Resource: key.kind.GVR(), Kind: kind}})
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
			if as, ok := matchedKindIn(other, key); ok {
				out = append(out, match{rule: &rules[i], matchedKind: as})
				break
			}
		}
	}
	return out
}

// matchedKindIn returns the resource and kind of a request in another version of its resource. It
// returns false if that version lacks the subresource.
func matchedKindIn(other *apiset.Resource, key requestKey) (MatchedKind, bool) {
	matchedKind := MatchedKind{Resource: other.GVR(), Kind: other.GVK()}
	if key.subresource == "" {
		return matchedKind, true
	}
	subresource := other.Subresource(key.subresource)
	if subresource == nil {
		return matchedKind, false
	}
	switch {
	case subresource.GVK.Kind == "": // the subresource has the kind of the resource
	case subresource.GVK.Version == "":
		matchedKind.Kind = other.GroupVersion().WithKind(subresource.GVK.Kind)
	default:
		matchedKind.Kind = subresource.GVK
	}
	return matchedKind, true
}
