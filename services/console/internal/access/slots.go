package access

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// slots limits concurrency, in total and per address.
type slots struct {
	all  chan struct{} // holds one element per request
	each int

	mu   sync.Mutex // a leaf lock
	from map[string]*origin
}

// origin is an address with current or waiting requests.
type origin struct {
	slots    chan struct{}
	requests int
}

func newSlots(all, each int) *slots {
	return &slots{all: make(chan struct{}, all), each: each, from: map[string]*origin{}}
}

// acquire waits for a slot, which release frees. A request that waits for other requests from its
// address occupies no slot of the total.
func (s *slots) acquire(ctx context.Context, address string) (release func(), err error) {
	s.mu.Lock()
	o := s.from[address]
	if o == nil {
		o = &origin{slots: make(chan struct{}, s.each)}
		s.from[address] = o
	}
	o.requests++
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if o.requests--; o.requests == 0 {
			delete(s.from, address)
		}
	}
	select {
	case o.slots <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-o.slots
		forget()
		return nil, ctx.Err()
	}
	return func() {
		<-s.all
		<-o.slots
		forget()
	}, nil
}

// addressOf returns the address of a request's client. For IPv6 it returns the network, because one
// machine has many addresses.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	const network = 64
	if ip = ip.Unmap(); ip.Is6() {
		if prefix, err := ip.WithZone("").Prefix(network); err == nil {
			return prefix.String()
		}
	}
	return ip.String()
}
