package webhooks

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission/expressions"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/watchcache"
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
	shows watchcache.Version
	index *matcher.Index[*hook]
}

// get returns the hooks as they are configured now.
func (c *configurations) get() *matcher.Index[*hook] {
	s := c.source.Store.Snapshot()
	if now := c.current.Load(); now != nil && now.shows == s.Version() {
		return now.index
	}
	return c.make()
}

func (c *configurations) make() *matcher.Index[*hook] {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.source.Store.Snapshot()
	if now := c.current.Load(); now != nil && now.shows == s.Version() {
		return now.index
	}
	made := map[string]*compiled{}
	var entries []matcher.Entry[*hook]
	s.Ascend(c.source.Store.Prefix(), "", func(e *watchcache.Entry) bool {
		m := c.made[e.Key]
		if m == nil || m.entry != e {
			m = c.compile(e)
		}
		made[e.Key] = m
		for _, h := range m.hooks {
			at := *h
			at.ordinal = len(entries)
			entries = append(entries, matcher.Entry[*hook]{Criterion: h.criterion, Value: &at})
		}
		return true
	})
	c.made = made
	next := &state{s.Version(), matcher.NewIndex(c.family, entries)}
	c.current.Store(next)
	used := map[string]bool{}
	for _, e := range entries {
		used[e.Value.caller.key] = true
	}
	c.clients.retain(used)
	return next.index
}

func (c *configurations) compile(e *watchcache.Entry) *compiled {
	m := &compiled{entry: e}
	obj, err := c.source.Decode(e)
	if err != nil {
		c.log.Error("a webhook configuration cannot be read; its webhooks are not called", "configuration", e.Name, "error", err)
		return m
	}
	hooks := c.hooksOf(obj)
	for i := range hooks {
		h := compile(c.compiler, obj, &hooks[i])
		config, _ := json.Marshal(hooks[i].ClientConfig) // texts and numbers
		h.caller = c.clients.caller(string(obj.GetUID())+"/"+hooks[i].Name+"/"+string(config), h, hooks[i].ClientConfig)
		m.hooks = append(m.hooks, h)
	}
	return m
}
