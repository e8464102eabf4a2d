// Package peers has requests for what this replica does not serve answered by one that does
// (Kubernetes: KEP-4020, unknown version interoperability proxy): during an upgrade, or
// where replicas have another --runtime-config.
//
//	Presence         where this replica is for its peers, in the store as long as it lives
//	Peers.Handler    who else serves a resource, as storage versions say
//	peer             one such replica; requests are carried on to it (package carry)
//
// A request has been authenticated and authorized here before it goes on. The peer, which
// knows this server by its client certificate, takes the user from the headers and
// authorizes him again. A request that came from a peer is answered here, whatever
// that is: nothing goes on twice. Clients who claim that get nothing by it but a 404.
//
// The app makes both where the gate UnknownVersionInteroperabilityProxy is on.
package peers
