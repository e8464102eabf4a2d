package containers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// retryPause is the time for which a failed lookup is cached.
const retryPause = 250 * time.Millisecond

// addresses caches the addresses of containers. A lookup runs a docker process. Concurrent callers
// share one lookup, and a caller that gives up does not cancel it.
type addresses struct {
	mu      sync.Mutex         // never held while another lock is acquired
	lookups map[string]*lookup // by network and service
}

// lookup is a running or finished lookup.
type lookup struct {
	done    chan struct{}
	ip      string
	err     error
	expires time.Time // when a failure expires
}

// resolve returns the address for key from the cache, or from query.
func (a *addresses) resolve(ctx context.Context, key string, query func() (string, error)) (string, error) {
	l := a.cachedLookup(key, query)
	select {
	case <-l.done:
		return l.ip, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// cachedLookup returns the lookup for key, and starts query if there is none.
func (a *addresses) cachedLookup(key string, query func() (string, error)) *lookup {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.lookups[key]; l != nil && !l.expired() {
		return l
	}
	l := &lookup{done: make(chan struct{})}
	if a.lookups == nil {
		a.lookups = map[string]*lookup{}
	}
	a.lookups[key] = l
	go func() {
		defer close(l.done)
		l.ip, l.err = query()
		l.expires = time.Now().Add(retryPause)
	}()
	return l
}

// expired reports whether the lookup failed and should be repeated.
func (l *lookup) expired() bool {
	select {
	case <-l.done:
		return l.err != nil && time.Now().After(l.expires)
	default:
		return false
	}
}

// clear empties the cache because addresses may have changed. Callers that wait for a running
// lookup still get its result.
func (a *addresses) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.lookups)
}

// removeUnreachable removes an address that could not be reached, so that the next caller looks it
// up again.
func (a *addresses) removeUnreachable(key, ip string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lookups[key]
	if l == nil {
		return
	}
	select {
	case <-l.done:
		if l.ip == ip {
			delete(a.lookups, key)
		}
	default: // a lookup is running
	}
}

// serviceAddress returns the address of a service on a network.
func (c *composition) serviceAddress(ctx context.Context, service, network string) (string, error) {
	return c.addresses.resolve(ctx, network+"/"+service, func() (string, error) {
		id, err := c.container(service)
		if err != nil {
			return "", err
		}
		out, err := docker("inspect",
			"--format={{with index .NetworkSettings.Networks \""+c.networkName(network)+"\"}}{{.IPAddress}}{{end}}", id)
		if err != nil {
			return "", err
		}
		ip := strings.TrimSpace(out)
		if ip == "" {
			return "", fmt.Errorf("%s has no address on network %s", service, network)
		}
		return ip, nil
	})
}
