package webhooks

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// configurations holds the compiled webhook configurations of one kind. The first request after a
// change of configurations compiles the changed ones.
type configurations struct {
	// source provides the stored configurations.
	source admission.Source
	// hooksOf returns the webhooks of a decoded configuration.
	hooksOf func(metav1.Object) []webhook
	// compiler returns the compiler of match conditions.
	compiler func() (*expressions.Compiler, error)
	// family provides all versions of a resource, for the matchPolicy Equivalent.
	family matcher.Family
	// clients holds the clients of all webhooks. Both kinds of configurations share it.
	clients *clients
	log     *slog.Logger

	mu sync.Mutex // serializes compilation; acquired before clients.mu
	// compiled holds the hooks of each configuration.
	compiled lister.Compiled[[]*hook]
	// current is the last result of rebuild; nil before the first request.
	current atomic.Pointer[hookSnapshot]
}

// hookSnapshot is the result of compiling all configurations at one version of their store.
type hookSnapshot struct {
	version objects.Version
	index   *matcher.Index[*hook]
	// err is set if a configuration is corrupt and no earlier version of it was decoded.
	err error
}

// hooks returns an index of the configured hooks. If a configuration becomes corrupt, its last
// decoded version stays in effect. hooks returns an error if no version of a configuration was
// decoded, because its webhooks are unknown.
func (c *configurations) hooks() (*matcher.Index[*hook], error) {
	snapshot := c.source.Store.Snapshot()
	if current := c.current.Load(); current != nil && current.version == snapshot.Version() {
		return current.index, current.err
	}
	current := c.rebuild()
	return current.index, current.err
}

// rebuild compiles the current configurations, unless another goroutine has done so.
func (c *configurations) rebuild() *hookSnapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	snapshot := c.source.Store.Snapshot()
	if current := c.current.Load(); current != nil && current.version == snapshot.Version() {
		return current
	}
	items, err := c.compiled.Update(snapshot, nil)
	entries := numberHooks(items)
	next := &hookSnapshot{
		version: snapshot.Version(),
		index:   matcher.NewIndex(c.family, entries),
		err:     err,
	}
	c.current.Store(next)
	// Close the clients of webhooks that are no longer configured.
	used := map[string]bool{}
	for _, e := range entries {
		used[e.Value.caller.key] = true
	}
	c.clients.retain(used)
	return next
}

// numberHooks returns the entries of an index with all hooks, numbered in the order of items. It
// numbers copies of the hooks, because earlier snapshots have the hooks with other numbers.
func numberHooks(items []lister.Item[[]*hook]) (entries []matcher.Entry[*hook]) {
	for _, item := range items {
		for _, h := range item.Value {
			numbered := *h
			numbered.ordinal = len(entries)
			entries = append(entries, matcher.Entry[*hook]{Criteria: h.criteria, Value: &numbered})
		}
	}
	return entries
}

// names returns the names of the configured hooks, and false if a configuration is corrupt.
func (c *configurations) names() (map[string]bool, bool) {
	if _, err := c.hooks(); err != nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	for _, item := range c.compiled.Items() {
		for _, h := range item.Value {
			out[h.name] = true
		}
	}
	return out, true
}

// compile returns the compiled hooks of a stored configuration.
func (c *configurations) compile(e *objects.Entry) ([]*hook, error) {
	obj, err := c.source.Decode(e)
	if err != nil {
		return nil, fmt.Errorf("webhook configuration %q: %w", e.Name(), err)
	}
	hooks := c.hooksOf(obj)
	out := make([]*hook, len(hooks))
	for i := range hooks {
		h := compileHook(c.compiler, obj, &hooks[i])
		config, _ := json.Marshal(hooks[i].ClientConfig) // cannot fail for strings and numbers
		key := string(obj.GetUID()) + "/" + hooks[i].Name + "/" + string(config)
		h.caller = c.clients.callerFor(key, h, hooks[i].ClientConfig)
		out[i] = h
	}
	return out, nil
}

// logCorrupt logs that a configuration is corrupt. retained reports whether its last
// decoded version stays in effect.
func (c *configurations) logCorrupt(entry *objects.Entry, retained bool, err error) {
	consequence := "rejecting requests because the webhooks to call are unknown"
	if retained {
		consequence = "keeping its previous state"
	}
	c.log.Error("failed to read a webhook configuration; "+consequence, "configuration", entry.Name(), "error", err)
}
