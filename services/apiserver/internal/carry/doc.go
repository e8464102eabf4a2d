// Package carry carries requests on to other servers that answer for a part of the API, as
// the user that was authenticated here: aggregate's extension servers, and the peers that
// serve what this replica does not.
//
//	Way          one such server: where it is, and the connections to it
//	Way.Carry    a request with its body, and the answer, as they come; upgrades too
//	Breaker      a server that does not answer costs a bounded time, and holds its share
//	             of the requests under way
//
// What a client says of who he is goes no further than this server, which says it itself
// (X-Remote-User and the like) and proves by its certificate that it may. A breaker is
// closed, and opens when requests fail in a row or wait too long and a probe then fails
// too; it closes with the first probe that is answered.
package carry
