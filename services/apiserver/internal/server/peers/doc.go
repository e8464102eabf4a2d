// Package peers proxies requests for resources that this replica does not serve to a replica that
// does (Kubernetes: KEP-4020, unknown version interoperability proxy). Replicas differ during an
// upgrade, or in their --runtime-config.
//
//	Presence         publishes the address of this replica in the store, with an expiration
//	Peers.Handler    finds replicas that serve a resource, by storage versions
//	peer             one such replica, to which requests are proxied (package reverseproxy)
//
// A request is authenticated and authorized here before it is proxied. The peer trusts this
// server's client certificate, takes the user from the headers and authorizes the request again. A
// request with the header of a peer is never proxied again, so a client that sets this header gets 404
// for a resource that this replica does not serve.
//
// Package build creates Presence and Peers if the gate UnknownVersionInteroperabilityProxy is on.
package peers
