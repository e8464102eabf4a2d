package policies

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission/matcher"
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

// configured holds the policies of one kind that have bindings. P is a compiled policy, B a
// compiled binding.
type configured[P, B any] struct {
	policies, bindings Source
	family             matcher.Family
	log                *slog.Logger
	// policy and binding compile decoded objects.
	policy  func(metav1.Object) (P, *matcher.Criterion)
	binding func(metav1.Object) (of string, b B)

	mu           sync.Mutex // serializes updates; leaf lock
	madePolicies map[string]made[P]
	madeBindings map[string]madeBinding[B]
	current      atomic.Pointer[configuration[P, B]]
}

type made[P any] struct {
	entry     *watchcache.Entry
	policy    P
	criterion *matcher.Criterion
}

type madeBinding[B any] struct {
	entry   *watchcache.Entry
	of      string
	binding B
}

// bound is a policy with its bindings, sorted by name.
type bound[P, B any] struct {
	policy   P
	bindings []B
}

// configuration is the result of compiling all entries.
type configuration[P, B any] struct {
	policies, bindings watchcache.Version
	index              *matcher.Index[*bound[P, B]]
	// unread is the error of an entry whose content is unknown, or nil.
	unread error
}

// seen waits until all acknowledged writes are in effect.
func (c *configured[P, B]) seen(ctx context.Context) error {
	if err := c.policies.WaitForWrites(ctx); err != nil {
		return err
	}
	return c.bindings.WaitForWrites(ctx)
}

// get returns the current policies, sorted by name. A policy that becomes unreadable stays in
// effect as it was. A policy that could never be read is an error.
func (c *configured[P, B]) get() (*matcher.Index[*bound[P, B]], error) {
	policies, bindings := c.policies.Store.Snapshot(), c.bindings.Store.Snapshot()
	if now := c.current.Load(); now != nil && now.policies == policies.Version() && now.bindings == bindings.Version() {
		return now.index, now.unread
	}
	now := c.make()
	return now.index, now.unread
}

func (c *configured[P, B]) make() *configuration[P, B] {
	c.mu.Lock()
	defer c.mu.Unlock()
	policies, bindings := c.policies.Store.Snapshot(), c.bindings.Store.Snapshot()
	next := &configuration[P, B]{policies: policies.Version(), bindings: bindings.Version()}
	if now := c.current.Load(); now != nil && now.policies == next.policies && now.bindings == next.bindings {
		return now
	}
	by, err := c.readBindings(bindings)
	next.unread = err
	found := map[string]made[P]{}
	var entries []matcher.Entry[*bound[P, B]]
	for e := range all(policies, c.policies.Store.Prefix()) {
		of := by[e.Name()]
		if len(of) == 0 {
			continue
		}
		m, ok := c.madePolicies[e.Key()]
		if !ok || m.entry != e {
			obj, err := c.policies.Decode(e)
			if err == nil {
				m = made[P]{entry: e}
				m.policy, m.criterion = c.policy(obj)
			} else if err = c.unreadable("an admission policy", e, ok, err); err != nil {
				next.unread = err
				continue
			}
		}
		found[e.Key()] = m
		entries = append(entries, matcher.Entry[*bound[P, B]]{Criterion: m.criterion, Value: &bound[P, B]{m.policy, of}})
	}
	c.madePolicies = found
	next.index = matcher.NewIndex(c.family, entries)
	c.current.Store(next)
	return next
}

// unreadable logs that a policy or binding cannot be read. It returns nil if its previous content
// is known.
func (c *configured[P, B]) unreadable(what string, e *watchcache.Entry, known bool, err error) error {
	if known {
		c.log.Error(what+" cannot be read; what it said before stays in force", "name", e.Name(), "error", err)
		return nil
	}
	c.log.Error(what+" cannot be read; rejecting requests that it may apply to", "name", e.Name(), "error", err)
	return fmt.Errorf("%s %q: %w", what, e.Name(), err)
}

// pairs returns the names of the current pairs of policy and binding. It returns false if the
// content of some entry is unknown.
func (c *configured[P, B]) pairs() (map[[2]string]bool, bool) {
	if _, err := c.get(); err != nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[[2]string]bool, len(c.madeBindings))
	policies := map[string]bool{}
	for _, m := range c.madePolicies {
		policies[m.entry.Name()] = true
	}
	for _, m := range c.madeBindings {
		if policies[m.of] {
			out[[2]string{m.of, m.entry.Name()}] = true
		}
	}
	return out, true
}

// readBindings returns all bindings by the name of their policy.
func (c *configured[P, B]) readBindings(s watchcache.Snapshot) (by map[string][]B, unread error) {
	found := map[string]madeBinding[B]{}
	by = map[string][]B{}
	for e := range all(s, c.bindings.Store.Prefix()) {
		m, ok := c.madeBindings[e.Key()]
		if !ok || m.entry != e {
			obj, err := c.bindings.Decode(e)
			if err == nil {
				m = madeBinding[B]{entry: e}
				m.of, m.binding = c.binding(obj)
			} else if err = c.unreadable("the binding of an admission policy", e, ok, err); err != nil {
				unread = err
				continue
			}
		}
		found[e.Key()] = m
		by[m.of] = append(by[m.of], m.binding)
	}
	c.madeBindings = found
	return by, unread
}

// all yields all entries below a prefix, sorted by name.
func all(s watchcache.Snapshot, prefix string) func(yield func(*watchcache.Entry) bool) {
	return func(yield func(*watchcache.Entry) bool) {
		var entries []*watchcache.Entry
		s.Ascend(prefix, "", func(e *watchcache.Entry) bool {
			entries = append(entries, e)
			return true
		})
		slices.SortStableFunc(entries, func(a, b *watchcache.Entry) int { return cmp.Compare(a.Name(), b.Name()) })
		for _, e := range entries {
			if !yield(e) {
				return
			}
		}
	}
}
