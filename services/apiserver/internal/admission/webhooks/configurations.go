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

// configurations compiles the webhook configurations when they change.
type configurations struct {
	source   admission.Source
	hooksOf  func(metav1.Object) []webhook
	compiler func() (*expressions.Compiler, error)
	family   matcher.Family
	clients  *clients
	log      *slog.Logger

	mu       sync.Mutex // serializes compilation; acquired before clients.mu
	compiled lister.Compiled[[]*hook]
	current  atomic.Pointer[state]
}

// state is the result of all entries.
type state struct {
	version objects.Version
	index   *matcher.Index[*hook]
	// err is set if a configuration is unreadable and has no previous state.
	err error
}

// get returns the currently configured hooks. A configuration that became unreadable keeps its
// previous state. A configuration that was never readable is an error, because its webhooks are
// unknown.
func (c *configurations) get() (*matcher.Index[*hook], error) {
	snapshot := c.source.Store.Snapshot()
	if now := c.current.Load(); now != nil && now.version == snapshot.Version() {
		return now.index, now.err
	}
	now := c.rebuild()
	return now.index, now.err
}

// rebuild compiles the current configurations, unless another goroutine has done so.
func (c *configurations) rebuild() *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	snapshot := c.source.Store.Snapshot()
	if now := c.current.Load(); now != nil && now.version == snapshot.Version() {
		return now
	}
	next := &state{version: snapshot.Version()}
	var items []lister.Item[[]*hook]
	items, next.err = c.compiled.Update(snapshot, nil)
	var entries []matcher.Entry[*hook]
	for _, item := range items {
		for _, h := range item.Value {
			numbered := *h
			numbered.ordinal = len(entries)
			entries = append(entries, matcher.Entry[*hook]{Criteria: h.criteria, Value: &numbered})
		}
	}
	next.index = matcher.NewIndex(c.family, entries)
	c.current.Store(next)
	used := map[string]bool{}
	for _, e := range entries {
		used[e.Value.caller.key] = true
	}
	c.clients.retain(used)
	return next
}

// names returns the names of the configured hooks, and false if a configuration is unreadable.
func (c *configurations) names() (map[string]bool, bool) {
	if _, err := c.get(); err != nil {
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

func (c *configurations) compile(e *objects.Entry) ([]*hook, error) {
	obj, err := c.source.Decode(e)
	if err != nil {
		return nil, fmt.Errorf("webhook configuration %q: %w", e.Name(), err)
	}
	hooks := c.hooksOf(obj)
	out := make([]*hook, len(hooks))
	for i := range hooks {
		h := compile(c.compiler, obj, &hooks[i])
		config, _ := json.Marshal(hooks[i].ClientConfig) // strings and numbers never fail
		h.caller = c.clients.caller(string(obj.GetUID())+"/"+hooks[i].Name+"/"+string(config), h, hooks[i].ClientConfig)
		out[i] = h
	}
	return out, nil
}

func (c *configurations) unreadable(e *objects.Entry, retained bool, err error) {
	consequence := "rejecting requests because the webhooks to call are unknown"
	if retained {
		consequence = "keeping its previous state"
	}
	c.log.Error("failed to read a webhook configuration; "+consequence, "configuration", e.Name(), "error", err)
}
