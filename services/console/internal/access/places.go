package access

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// places limits concurrency, in total and per address.
type places struct {
	all  chan struct{} // holds one element per user
	each int

	mu   sync.Mutex // a leaf lock
	from map[string]*origin
}

// origin is an address with current or waiting users.
type origin struct {
	there chan struct{}
	users int
}

func newPlaces(all, each int) *places {
	return &places{all: make(chan struct{}, all), each: each, from: map[string]*origin{}}
}

// enter waits for a slot, which leave releases. A request that waits for other requests from its
// address occupies no slot of the total.
func (p *places) enter(ctx context.Context, address string) (leave func(), err error) {
	p.mu.Lock()
	o := p.from[address]
	if o == nil {
		o = &origin{there: make(chan struct{}, p.each)}
		p.from[address] = o
	}
	o.users++
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if o.users--; o.users == 0 {
			delete(p.from, address)
		}
	}
	select {
	case o.there <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
	select {
	case p.all <- struct{}{}:
	case <-ctx.Done():
		<-o.there
		forget()
		return nil, ctx.Err()
	}
	return func() {
		<-p.all
		<-o.there
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
