package webhook

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
	// cacheEntries bounds the decisions that are kept.
	cacheEntries = 8192
	// maxKeptAttributes bounds, in bytes, what of a question its asker can make
	// as long as it likes.
	maxKeptAttributes = 10_000
)

// question identifies what a decision was made on: a digest, so that what is
// kept is small whatever was asked.
type question [sha256.Size]byte

// questionOf attributes. It runs on the small stack of a request, which would
// have to be copied for more: the text is put together in a buffer that is used
// again.
func (c *cache) questionOf(a *authorizer.Attributes) question {
	buf, _ := c.buffers.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	*buf = appendQuestion((*buf)[:0], a)
	q := question(sha256.Sum256(*buf))
	if cap(*buf) <= maxKeptAttributes {
		c.buffers.Put(buf)
	}
	return q
}

// appendQuestion writes lengths before texts and lists, so that no two questions
// are written the same.
func appendQuestion(buf []byte, a *authorizer.Attributes) []byte {
	buf = appendUser(buf, a.User)
	if !a.Resource {
		return appendTexts(buf, "path", a.Verb, a.Path)
	}
	buf = appendTexts(buf, "resource", a.Verb, a.Group, a.Version, a.ResourceName, a.Subresource, a.Namespace, a.Name)
	buf = binary.AppendUvarint(buf, uint64(len(a.FieldSelector)))
	for _, r := range a.FieldSelector {
		buf = appendTexts(buf, r.Field, string(r.Operator), r.Value)
	}
	buf = binary.AppendUvarint(buf, uint64(len(a.LabelSelector)))
	for i := range a.LabelSelector {
		r := &a.LabelSelector[i]
		buf = appendTexts(buf, r.Key(), string(r.Operator()))
		buf = appendTexts(buf, r.Values().List()...)
	}
	return buf
}

func appendUser(buf []byte, u *authorizer.User) []byte {
	if u == nil {
		u = &authorizer.User{}
	}
	buf = appendTexts(buf, u.Name, u.UID)
	buf = appendTexts(buf, u.Groups...)
	buf = binary.AppendUvarint(buf, uint64(len(u.Extra)))
	if len(u.Extra) == 1 { // nothing to sort
		for k, v := range u.Extra {
			buf = appendTexts(appendTexts(buf, k), v...)
		}
		return buf
	}
	for _, k := range slices.Sorted(maps.Keys(u.Extra)) {
		buf = appendTexts(appendTexts(buf, k), u.Extra[k]...)
	}
	return buf
}

func appendTexts(buf []byte, texts ...string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(texts)))
	for _, t := range texts {
		buf = binary.AppendUvarint(buf, uint64(len(t)))
		buf = append(buf, t...)
	}
	return buf
}

// oversized tells whether a question is too long for its decision to be kept.
func oversized(a *authorizer.Attributes) bool {
	n := len(a.Namespace) + len(a.Verb) + len(a.Group) + len(a.Version) + len(a.ResourceName) + len(a.Subresource) + len(a.Name) + len(a.Path)
	for _, r := range a.FieldSelector {
		n += len(r.Field) + len(r.Value)
	}
	for i := range a.LabelSelector {
		n += len(a.LabelSelector[i].String())
	}
	return n >= maxKeptAttributes
}

// decision is what a service answered.
type decision struct {
	status  authorizationv1.SubjectAccessReviewStatus
	expires time.Time
}

// cache keeps decisions of the present policy.
type cache struct {
	mu      sync.Mutex // a leaf
	entries *simplelru.LRU[question, decision]
	// position is that of the newest policy that was seen, and changes counts
	// how often it moved: decisions and flights belong to one count.
	position rbac.Position
	changes  uint64
	// distrust is until when nothing is kept, because the store went back: services
	// may still tell positions of before, which cannot be told from later ones.
	distrust time.Time

	buffers sync.Pool // of *[]byte
}

func newCache() (*cache, error) {
	lru, err := simplelru.NewLRU[question, decision](cacheEntries, nil)
	if err != nil {
		return nil, fmt.Errorf("cache of decisions: %w", err)
	}
	return &cache{entries: lru}, nil
}

// get returns a decision that still holds, and the count of policies.
func (c *cache) get(q question, now time.Time) (authorizationv1.SubjectAccessReviewStatus, bool, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.entries.Get(q)
	if ok && !now.Before(d.expires) {
		c.entries.Remove(q)
		ok = false
	}
	return d.status, ok, c.changes
}

// put keeps a decision that was asked for at a count of policies, and made at a
// position, if the service told.
func (c *cache) put(q question, d decision, asked uint64, at *rbac.Position, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.distrust) {
		return false
	}
	if at == nil && asked != c.changes || at != nil && !at.Covers(c.position) {
		return false
	}
	c.entries.Add(q, d)
	return true
}

// covered tells whether a decision at a position was made on the newest policy
// that was seen.
func (c *cache) covered(at rbac.Position) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Covers(c.position)
}

// distrustFor is how long services have to follow a store that went back: they learn
// of it when their watches end, as the replicas notice.
const distrustFor = 30 * time.Second

// moved forgets what was decided before the policy came to a position. Positions come
// in their order: one that does not cover the one before it is of a store that went
// back.
func (c *cache) moved(position rbac.Position, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.position == position {
		return
	}
	if !position.Covers(c.position) {
		c.distrust = now.Add(distrustFor)
	}
	c.position = position
	c.changes++
	c.entries.Purge()
}
