// Package scrape reads the metrics and the readiness of a suite's replicas: it finds them by their
// names, scrapes all of them concurrently, and keeps the few figures that package view shows.
// Everything is bounded: replicas, time, bytes.
//
// A replica is trusted only if its certificate has the name of its service.
package scrape

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Target is a service: its name, and the location of its replicas.
type Target struct {
	// Service is the name in the certificates of its replicas.
	Service string
	// Host is an address, or a name that resolves to one address per replica.
	Host, Port string
}

var serviceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// ParseTarget parses SERVICE=https://HOST:PORT.
func ParseTarget(text string) (Target, error) {
	service, address, ok := strings.Cut(text, "=")
	if !ok || !serviceName.MatchString(service) {
		return Target{}, fmt.Errorf("%q is not SERVICE=https://HOST:PORT", text)
	}
	parsed, err := url.Parse(address)
	if err != nil || !isHTTPSHostPort(parsed) {
		return Target{}, fmt.Errorf("%q is not SERVICE=https://HOST:PORT", text)
	}
	return Target{Service: service, Host: parsed.Hostname(), Port: parsed.Port()}, nil
}

// isHTTPSHostPort reports whether a URL has the scheme https, a host, a port, and nothing else.
func isHTTPSHostPort(u *url.URL) bool {
	hasAddress := u.Scheme == "https" && u.Hostname() != "" && u.Port() != ""
	hasMore := u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != ""
	return hasAddress && !hasMore
}

// maxReplicas bounds the replicas of one target.
const maxReplicas = 64

// lookupFunc resolves the addresses of a name, like net.Resolver.
type lookupFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

// lookUpReplicas returns the addresses of a target's replicas with their port, sorted.
func (t Target) lookUpReplicas(ctx context.Context, find lookupFunc) ([]string, error) {
	if _, err := netip.ParseAddr(t.Host); err == nil {
		return []string{net.JoinHostPort(t.Host, t.Port)}, nil
	}
	found, err := find(ctx, "ip", t.Host)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", t.Host, err)
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	var out []string
	for _, a := range slices.Compact(found) {
		if len(out) < maxReplicas {
			out = append(out, net.JoinHostPort(a.String(), t.Port))
		}
	}
	return out, nil
}
