// Package reverseproxy proxies requests to other servers that serve a part of the API, as the
// authenticated user: extension servers of package aggregation, and peers that serve resources that
// this replica does not.
//
//	Proxy        the reverse proxy for one server: its location and connections
//	Proxy.Serve  proxies a request and its response as streams; upgrades too
//	Limit        bounds the requests that are proxied to any server at a time
//	Breaker      bounds the cost of a server that does not respond, and its share
//	             of the requests in progress
//
// Credentials of the client are not forwarded. This server sets the user itself (X-Remote-User and
// the like), and its client certificate proves that it may. A breaker starts closed. It opens when
// requests fail in a row or wait too long and a probe fails too. It closes with the first
// successful probe.
package reverseproxy
