package containers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// lookPause is how long an answer counts that there is no address.
const lookPause = 250 * time.Millisecond

// addresses are those of containers, as the engine tells them. Its client is a process, and
// many wait for an address at a time: one asks for all of them, and whoever is no longer
// interested does not end that.
type addresses struct {
	mu    sync.Mutex // a leaf
	known map[string]*look
}

// look is what is asked of the engine, or was answered.
type look struct {
	done  chan struct{}
	ip    string
	err   error
	until time.Time // when a failure is no longer believed
}

// find is the address that ask tells, or told.
func (a *addresses) find(ctx context.Context, key string, ask func() (string, error)) (string, error) {
	l := a.look(key, ask)
	select {
	case <-l.done:
		return l.ip, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (a *addresses) look(key string, ask func() (string, error)) *look {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.known[key]; l != nil && !l.outdated() {
		return l
	}
	l := &look{done: make(chan struct{})}
	if a.known == nil {
		a.known = map[string]*look{}
	}
	a.known[key] = l
	go func() {
		defer close(l.done)
		l.ip, l.err = ask()
		l.until = time.Now().Add(lookPause)
	}()
	return l
}

func (l *look) outdated() bool {
	select {
	case <-l.done:
		return l.err != nil && time.Now().After(l.until)
	default:
		return false
	}
}

// forget what is known, as all may be others now. Who waits is told what was asked before.
func (a *addresses) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.known)
}

// mistaken forgets an address that nobody answered at.
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
	default: // is being asked for
	}
}

// address is that of a service on one of the networks.
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
			return "", fmt.Errorf("%s has no address on %s", service, network)
		}
		return ip, nil
	})
}
