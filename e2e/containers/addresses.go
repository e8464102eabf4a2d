package containers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// retryPause is how long a failed lookup is cached.
const retryPause = 250 * time.Millisecond

// addresses caches the addresses of containers. A lookup runs a docker process. Concurrent callers
// share one lookup, and a caller that gives up does not cancel it.
type addresses struct {
	mu    sync.Mutex // never held while another lock is acquired
	known map[string]*lookup
}

// lookup is a running or finished lookup.
type lookup struct {
	done  chan struct{}
	ip    string
	err   error
	until time.Time // when a failure expires
}

// find returns the address for key from the cache, or from query.
func (a *addresses) find(ctx context.Context, key string, query func() (string, error)) (string, error) {
	l := a.lookup(key, query)
	select {
	case <-l.done:
		return l.ip, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (a *addresses) lookup(key string, query func() (string, error)) *lookup {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.known[key]; l != nil && !l.outdated() {
		return l
	}
	l := &lookup{done: make(chan struct{})}
	if a.known == nil {
		a.known = map[string]*lookup{}
	}
	a.known[key] = l
	go func() {
		defer close(l.done)
		l.ip, l.err = query()
		l.until = time.Now().Add(retryPause)
	}()
	return l
}

func (l *lookup) outdated() bool {
	select {
	case <-l.done:
		return l.err != nil && time.Now().After(l.until)
	default:
		return false
	}
}

// forget clears the cache because addresses may have changed. Callers that wait for a running
// lookup still get its result.
func (a *addresses) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.known)
}

// mistaken removes an address that could not be reached.
func (a *addresses) mistaken(key, ip string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.known[key]
	if l == nil {
		return
	}
	select {
	case <-l.done:
		if l.ip == ip {
			delete(a.known, key)
		}
	default: // a lookup is running
	}
}

// address returns the address of a service on a network.
func (c *composition) address(ctx context.Context, service, network string) (string, error) {
	return c.addresses.find(ctx, network+"/"+service, func() (string, error) {
		id, err := c.container(service)
		if err != nil {
			return "", err
		}
		out, err := docker("inspect", "--format={{with index .NetworkSettings.Networks \""+c.network(network)+"\"}}{{.IPAddress}}{{end}}", id)
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
