// Package upgrade proxies requests that upgrade their connection to another protocol, such as SPDY
// or WebSocket. Targets are kubelets, pods, services, and servers that serve a part of the API.
//
//	Serve   proxies a client's request: the response, and then both directions
//	Dial    sends a request of this server: the connection, and the head of the response
//	Splice  copies between two connections until one of them ends
//
// Until the other side agrees, it is not trusted. The size of its response head is bounded. The
// wait for it ends with the request and after a timeout. A rejection is forwarded with its own
// headers, except for the Audit-Id of this server. A 101 response is forwarded byte for byte.
// Connections end with the request's context. Upgraded connections end with Proxy.Lifetime
// instead, if it is set.
package upgrade
