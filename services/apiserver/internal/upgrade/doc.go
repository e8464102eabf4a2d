// Package upgrade carries requests on that turn their connection into another protocol, such
// as SPDY or WebSocket, to whoever is asked for that: kubelets, pods, services, and servers
// that answer for a part of the API.
//
//	Carry  a client's request: the answer to it, and then what both sides say
//	Open   a request of this server: the connection, and the head of the answer
//	Join   two connections, until one of them ends
//
// Until the other side agrees it is a stranger: the head of its answer is read within
// bounds, waited for no longer than its request, nor than a while, and a refusal is
// answered with its head alone, but for the Audit-Id, which is ours. What it agrees in goes to the
// client byte for byte. Connections end with the request's context, and with Way.Life, where that
// is set, once the other side has agreed.
package upgrade
