package policies

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Source is the source of policies or bindings.
type Source struct {
	Store *watchcache.Store
	// Decode decodes an entry.
	Decode func(*watchcache.Entry) (metav1.Object, error)
	// WaitForWrites blocks until the store contains all writes that this server has acknowledged.
	WaitForWrites func(context.Context) error
}

// SourceOf returns the source of the objects of a kind. An unreadable object keeps its last
// readable state.
func SourceOf(k lister.CachedResource) Source {
	return Source{Store: k.Store, WaitForWrites: k.WaitForWrites, Decode: lister.LastReadable(k.Coder)}
}

// configured holds the policies of one kind that have bindings. P is a compiled policy, B a
// compiled binding.
type configured[P, B any] struct {
	policies, bindings Source
	family             matcher.Family
	log                *slog.Logger
	// policy and binding compile decoded objects.
	policy  func(metav1.Object) (P, *matcher.Criterion)
	binding func(metav1.Object) (of string, b B)

	mu               sync.Mutex // serializes updates; leaf lock
	compiledPolicies lister.Compiled[compiledPolicy[P]]
	compiledBindings lister.Compiled[compiledBinding[B]]
	current          atomic.Pointer[configuration[P, B]]
}

// withCompilers sets compiledPolicies and compiledBindings. All other fields are set.
func (c *configured[P, B]) withCompilers() *configured[P, B] {
	c.compiledPolicies = lister.Compiled[compiledPolicy[P]]{
		Store: c.policies.Store, Unreadable: c.unreadable("an admission policy"),
		Compile: func(e *watchcache.Entry) (m compiledPolicy[P], err error) {
			obj, err := c.policies.Decode(e)
			if err == nil {
				m.policy, m.criterion = c.policy(obj)
			}
			return m, withObjectName("an admission policy", e, err)
		},
	}
	c.compiledBindings = lister.Compiled[compiledBinding[B]]{
		Store: c.bindings.Store, Unreadable: c.unreadable("the binding of an admission policy"),
		Compile: func(e *watchcache.Entry) (m compiledBinding[B], err error) {
			obj, err := c.bindings.Decode(e)
			if err == nil {
				m.policyName, m.binding = c.binding(obj)
			}
			return m, withObjectName("the binding of an admission policy", e, err)
		},
	}
	return c
}

// withObjectName adds the name of an unreadable object to the error, which clients receive.
func withObjectName(what string, e *watchcache.Entry, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", what, e.Name(), err)
}

// unreadable returns a function that logs that an object cannot be read.
func (c *configured[P, B]) unreadable(what string) func(*watchcache.Entry, bool, error) {
	return func(e *watchcache.Entry, kept bool, err error) {
		consequence := "rejecting requests that it may apply to"
		if kept {
			consequence = "keeping its previous content"
		}
		c.log.Error("failed to read "+what+"; "+consequence, "name", e.Name(), "error", err)
	}
}

// compiledPolicy is a policy with what its match constraints select.
type compiledPolicy[P any] struct {
	policy    P
	criterion *matcher.Criterion
}

// compiledBinding is a binding with the name of its policy.
type compiledBinding[B any] struct {
	policyName string
	binding    B
}

// boundPolicy is a policy with its bindings, sorted by name.
type boundPolicy[P, B any] struct {
	policy   P
	bindings []B
}

// configuration is the result of compiling all entries.
type configuration[P, B any] struct {
	policies, bindings watchcache.Version
	index              *matcher.Index[*boundPolicy[P, B]]
	// unread is the error of an entry whose content is unknown, or nil.
	unread error
}

// waitForWrites blocks until all acknowledged writes are in effect.
func (c *configured[P, B]) waitForWrites(ctx context.Context) error {
	if err := c.policies.WaitForWrites(ctx); err != nil {
		return err
	}
	return c.bindings.WaitForWrites(ctx)
}

// index returns the current policies, sorted by name. A policy that becomes unreadable stays in
// effect as it was. A policy that could never be read is an error.
func (c *configured[P, B]) index() (*matcher.Index[*boundPolicy[P, B]], error) {
	policies := c.policies.Store.Snapshot()
	bindings := c.bindings.Store.Snapshot()
	if now := c.current.Load(); now != nil && now.policies == policies.Version() && now.bindings == bindings.Version() {
		return now.index, now.unread
	}
	now := c.rebuild()
	return now.index, now.unread
}

// rebuild compiles the current policies and bindings, unless another goroutine has done so.
func (c *configured[P, B]) rebuild() *configuration[P, B] {
	c.mu.Lock()
	defer c.mu.Unlock()
	policies := c.policies.Store.Snapshot()
	bindings := c.bindings.Store.Snapshot()
	next := &configuration[P, B]{policies: policies.Version(), bindings: bindings.Version()}
	if now := c.current.Load(); now != nil && now.policies == next.policies && now.bindings == next.bindings {
		return now
	}
	found, err := c.compiledBindings.Update(bindings, nil)
	byPolicy := map[string][]B{}
	for _, b := range found {
		byPolicy[b.Value.policyName] = append(byPolicy[b.Value.policyName], b.Value.binding)
	}
	compiled, failed := c.compiledPolicies.Update(policies, func(e *watchcache.Entry) bool { return len(byPolicy[e.Name()]) > 0 })
	next.unread = cmp.Or(failed, err)
	entries := make([]matcher.Entry[*boundPolicy[P, B]], len(compiled))
	for i, m := range compiled {
		entries[i] = matcher.Entry[*boundPolicy[P, B]]{Criterion: m.Value.criterion, Value: &boundPolicy[P, B]{m.Value.policy, byPolicy[m.Entry.Name()]}}
	}
	next.index = matcher.NewIndex(c.family, entries)
	c.current.Store(next)
	return next
}

// pairs returns the names of the current pairs of policy and binding. It returns false if the
// content of some entry is unknown.
func (c *configured[P, B]) pairs() (map[[2]string]bool, bool) {
	if _, err := c.index(); err != nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	bindings := c.compiledBindings.Items()
	out := make(map[[2]string]bool, len(bindings))
	policies := map[string]bool{}
	for _, m := range c.compiledPolicies.Items() {
		policies[m.Entry.Name()] = true
	}
	for _, m := range bindings {
		if policies[m.Value.policyName] {
			out[[2]string{m.Value.policyName, m.Entry.Name()}] = true
		}
	}
	return out, true
}
