package resources

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Cache holds the newest table.
type Cache struct {
	client Discovery

	mu             sync.Mutex // held while discovering, so that callers share the result
	table          *Table
	discoveryStart time.Time // before the discovery of table
}

// NewCache returns a cache that has discovered nothing.
func NewCache(client Discovery) *Cache { return &Cache{client: client} }

// Get returns a table whose discovery began at most maxAge ago. It discovers if necessary. If that
// fails, or ctx ends, it returns the error.
func (c *Cache) Get(ctx context.Context, maxAge time.Duration) (*Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	start := time.Now()
	if c.table != nil && start.Sub(c.discoveryStart) <= maxAge {
		return c.table, nil
	}
	table, err := discover(ctx, c.client, c.table)
	if err != nil {
		return nil, err
	}
	c.table = table
	c.discoveryStart = start
	return table, nil
}

// joinVerbs returns verbs as one text for containsVerb: ["get" "list"] -> ",get,list,".
func joinVerbs(verbs []string) string { return "," + strings.Join(verbs, ",") + "," }

func containsVerb(verbs, verb string) bool { return strings.Contains(verbs, ","+verb+",") }

func isSubresource(name string) bool { return strings.Contains(name, "/") }
