package authzwebhook

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
)

const (
	// maxCachedDecisions bounds the cached decisions.
	maxCachedDecisions = 8192
	// maxCachedAttributes bounds the client-controlled part of a cached request, in bytes.
	maxCachedAttributes = 10_000
)

// cacheKey identifies the input of a decision. It is a digest, so a cache key is small for any
// request.
type cacheKey [sha256.Size]byte

// cacheKeyOf returns the digest of attributes. It encodes them in a pooled buffer, because a buffer
// on the stack would grow the stack of each request.
func (c *decisionCache) cacheKeyOf(attrs *authorizer.Attributes) cacheKey {
	buf, _ := c.buffers.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	*buf = appendCacheKey((*buf)[:0], attrs)
	q := cacheKey(sha256.Sum256(*buf))
	if cap(*buf) <= maxCachedAttributes {
		c.buffers.Put(buf)
	}
	return q
}

// appendCacheKey appends the encoding of attributes. It writes lengths before texts and lists, so
// different requests have different encodings.
func appendCacheKey(buf []byte, attrs *authorizer.Attributes) []byte {
	buf = appendUser(buf, attrs.User)
	if !attrs.Resource {
		return appendTexts(buf, "path", attrs.Verb, attrs.Path)
	}
	buf = appendTexts(buf, "resource", attrs.Verb,
		attrs.Group, attrs.Version, attrs.ResourceName, attrs.Subresource, attrs.Namespace, attrs.Name)
	buf = binary.AppendUvarint(buf, uint64(len(attrs.FieldSelector)))
	for _, r := range attrs.FieldSelector {
		buf = appendTexts(buf, r.Field, string(r.Operator), r.Value)
	}
	buf = binary.AppendUvarint(buf, uint64(len(attrs.LabelSelector)))
	for i := range attrs.LabelSelector {
		r := &attrs.LabelSelector[i]
		buf = appendTexts(buf, r.Key(), string(r.Operator()))
		buf = appendTexts(buf, r.Values().List()...)
	}
	return buf
}

// appendUser appends the user of a request. The order of the extra fields does not matter.
func appendUser(buf []byte, user *authorizer.User) []byte {
	if user == nil {
		user = &authorizer.User{}
	}
	buf = appendTexts(buf, user.Name, user.UID)
	buf = appendTexts(buf, user.Groups...)
	buf = binary.AppendUvarint(buf, uint64(len(user.Extra)))
	if len(user.Extra) == 1 { // nothing to sort
		for k, v := range user.Extra {
			buf = appendTexts(appendTexts(buf, k), v...)
		}
		return buf
	}
	for _, k := range slices.Sorted(maps.Keys(user.Extra)) {
		buf = appendTexts(appendTexts(buf, k), user.Extra[k]...)
	}
	return buf
}

// appendTexts appends the number of texts, and each text with its length.
func appendTexts(buf []byte, texts ...string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(texts)))
	for _, t := range texts {
		buf = binary.AppendUvarint(buf, uint64(len(t)))
		buf = append(buf, t...)
	}
	return buf
}

// tooLongToCache reports whether a request is too long for its decision to be cached.
func tooLongToCache(attrs *authorizer.Attributes) bool {
	size := len(attrs.Namespace) + len(attrs.Verb) +
		len(attrs.Group) + len(attrs.Version) + len(attrs.ResourceName) + len(attrs.Subresource) + len(attrs.Name) + len(attrs.Path)
	for _, r := range attrs.FieldSelector {
		size += len(r.Field) + len(r.Value)
	}
	for i := range attrs.LabelSelector {
		size += len(attrs.LabelSelector[i].String())
	}
	return size >= maxCachedAttributes
}

// cachedDecision is a cached response of a service.
type cachedDecision struct {
	status  authorizationv1.SubjectAccessReviewStatus
	expires time.Time
	// asOf is the number of the last policy change when the decision was cached. The decision holds
	// while no later change affects its request.
	asOf uint64
}

// policyChange is the number of a policy change, and the position from which a
// decision includes it.
type policyChange struct {
	number   uint64
	position rbac.Position
}

// maxNamespaces bounds the namespaces whose last change is remembered.
const maxNamespaces = 4096

// decisionCache holds decisions based on the current policy.
type decisionCache struct {
	mu      sync.Mutex // leaf lock
	entries *simplelru.LRU[cacheKey, cachedDecision]
	// position is the newest position of the policy, and changes counts the changes
	// that affect decisions.
	position rbac.Position
	changes  uint64
	// cluster is the last change that affects all decisions. namespaces holds the last
	// change of each namespace, in the order of changes. When it overflows, the oldest
	// one counts for all decisions.
	cluster    policyChange
	namespaces *simplelru.LRU[string, policyChange]
	// noCachingUntil is the time before which nothing is cached. It is set when the store's
	// revision goes backwards: services may still report positions from before, which look newer.
	noCachingUntil time.Time

	buffers sync.Pool // of *[]byte
}

// newDecisionCache returns an empty cache.
func newDecisionCache() (*decisionCache, error) {
	created := &decisionCache{}
	var err error
	if created.entries, err = simplelru.NewLRU[cacheKey, cachedDecision](maxCachedDecisions, nil); err != nil {
		return nil, fmt.Errorf("cache of decisions: %w", err)
	}
	created.namespaces, err = simplelru.NewLRU(maxNamespaces, func(_ string, oldest policyChange) {
		created.cluster = created.cluster.latestOfBoth(oldest)
	})
	if err != nil {
		return nil, fmt.Errorf("policy changes by namespace: %w", err)
	}
	return created, nil
}

// latestOfBoth returns the change that a decision includes only if it includes both.
func (p policyChange) latestOfBoth(other policyChange) policyChange {
	p.number = max(p.number, other.number)
	for i := range p.position {
		p.position[i] = max(p.position[i], other.position[i])
	}
	return p
}

// lastChange returns the last change that affects decisions in a namespace, or at cluster
// scope if it is empty. c.mu is held.
func (c *decisionCache) lastChange(namespace string) policyChange {
	ofNamespace, ok := c.namespaces.Peek(namespace)
	if !ok {
		return c.cluster
	}
	return c.cluster.latestOfBoth(ofNamespace)
}

// lookUp returns a decision that still holds, and the number of the last change that
// affects it.
func (c *decisionCache) lookUp(
	key cacheKey,
	namespace string,
	now time.Time,
) (authorizationv1.SubjectAccessReviewStatus, bool, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.lastChange(namespace).number
	decision, valid := c.entries.Get(key)
	if valid && (decision.asOf < last || !now.Before(decision.expires)) {
		c.entries.Remove(key)
		valid = false
	}
	return decision.status, valid, last
}

// store caches a decision and reports whether it did. requestedAfter is the number of the last change
// before the decision was requested. position is the policy position that the service reported; nil
// if it reported none. A decision that does not include the last change that affects it is dropped.
func (c *decisionCache) store(
	key cacheKey,
	namespace string,
	decision cachedDecision,
	requestedAfter uint64,
	position *rbac.Position,
	now time.Time,
) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.noCachingUntil) {
		return false
	}
	last := c.lastChange(namespace)
	if position == nil && requestedAfter != last.number || position != nil && !position.Covers(last.position) {
		return false
	}
	decision.asOf = c.changes
	c.entries.Add(key, decision)
	return true
}

// includesLastChange reports whether a decision at a position includes the last change that
// affects decisions in a namespace.
func (c *decisionCache) includesLastChange(position rbac.Position, namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return position.Covers(c.lastChange(namespace).position)
}

// noCachingAfterRestore is how long services may take to follow a store whose revision went
// backwards. They notice when their watches end, as the replicas detect it.
const noCachingAfterRestore = 30 * time.Second

// policyChanged invalidates the decisions that a change affects. Changes arrive in order: a
// position that does not cover the previous one means that the store's revision went backwards.
func (c *decisionCache) policyChanged(change rbac.Change, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wentBack := !change.Position.Covers(c.position)
	if wentBack {
		c.noCachingUntil = now.Add(noCachingAfterRestore)
	}
	c.position = change.Position
	if !wentBack && !change.All && len(change.Namespaces) == 0 {
		return
	}
	c.changes++
	last := policyChange{number: c.changes, position: change.Position}
	if wentBack || change.All {
		c.namespaces.Purge()
		c.cluster = last
		c.entries.Purge()
		return
	}
	for namespace := range change.Namespaces {
		c.namespaces.Add(namespace, last)
	}
}
