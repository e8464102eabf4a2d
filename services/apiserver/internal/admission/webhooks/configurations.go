package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// Source is where configurations are read from.
type Source struct {
	Store *watchcache.Store
	// Decode reads an entry.
	Decode func(*watchcache.Entry) (metav1.Object, error)
	// Seen waits until the store has what this server has acknowledged of it.
	Seen func(context.Context) error
}

// configurations are the hooks that are configured, compiled.
type configurations struct {
	source   Source
	hooksOf  func(metav1.Object) []webhook
	compiler func() (*expressions.Compiler, error)
	family   matcher.Family
	clients  *clients
	log      *slog.Logger

	mu      sync.Mutex // serializes making; before clients.mu
	made    map[string]*compiled
	current atomic.Pointer[state]
}

// compiled is what was made of one entry.
type compiled struct {
	entry *watchcache.Entry
	hooks []*hook
}

// state is what was made of all entries.
type state struct {
	version watchcache.Version
	index   *matcher.Index[*hook]
	// unread is why it is not known of all configurations what they say.
	unread error
}

// get returns the hooks as they are configured now. What a configuration said that cannot
// be read any more stays in force, as it does for who follows it from elsewhere; of one
// that could never be read nobody knows whom to ask, which is an error.
func (c *configurations) get() (*matcher.Index[*hook], error) {
	s := c.source.Store.Snapshot()
	if now := c.current.Load(); now != nil && now.version == s.Version() {
		return now.index, now.unread
	}
	now := c.make()
	return now.index, now.unread
}

func (c *configurations) make() *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.source.Store.Snapshot()
	if now := c.current.Load(); now != nil && now.version == s.Version() {
		return now
	}
	made := map[string]*compiled{}
	next := &state{version: s.Version()}
	var entries []matcher.Entry[*hook]
	s.Ascend(c.source.Store.Prefix(), "", func(e *watchcache.Entry) bool {
		m := c.made[e.Key()]
		if m == nil || m.entry != e {
			now, err := c.compile(e)
			switch {
			case err == nil:
				m = now
			case m == nil:
				c.log.Error("a webhook configuration cannot be read; requests are refused, as nobody knows which webhooks to call", "configuration", e.Name(), "error", err)
				next.unread = fmt.Errorf("webhook configuration %q: %w", e.Name(), err)
				return true
			default:
				c.log.Error("a webhook configuration cannot be read; what it said before stays in force", "configuration", e.Name(), "error", err)
			}
		}
		made[e.Key()] = m
		for _, h := range m.hooks {
			at := *h
			at.ordinal = len(entries)
			entries = append(entries, matcher.Entry[*hook]{Criterion: h.criterion, Value: &at})
		}
		return true
	})
	c.made = made
	next.index = matcher.NewIndex(c.family, entries)
	c.current.Store(next)
	used := map[string]bool{}
	for _, e := range entries {
		used[e.Value.caller.key] = true
	}
	c.clients.retain(used)
	return next
}

// names returns the names of the hooks as they are configured now; false while it is not
// known what all configurations say.
func (c *configurations) names() (map[string]bool, bool) {
	if _, err := c.get(); err != nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	for _, m := range c.made {
		for _, h := range m.hooks {
			out[h.name] = true
		}
	}
	return out, true
}

func (c *configurations) compile(e *watchcache.Entry) (*compiled, error) {
	obj, err := c.source.Decode(e)
	if err != nil {
		return nil, err
	}
	m := &compiled{entry: e}
	hooks := c.hooksOf(obj)
	for i := range hooks {
		h := compile(c.compiler, obj, &hooks[i])
		config, _ := json.Marshal(hooks[i].ClientConfig) // texts and numbers
		h.caller = c.clients.caller(string(obj.GetUID())+"/"+hooks[i].Name+"/"+string(config), h, hooks[i].ClientConfig)
		m.hooks = append(m.hooks, h)
	}
	return m, nil
}
