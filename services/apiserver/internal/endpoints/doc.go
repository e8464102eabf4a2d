// Package endpoints answers the requests of the resource API: one file per
// operation of the protocol. It reads what it needs of a kind from its
// declaration (package registry), reads objects from the watch cache and writes
// them to the store.
//
//	route.go finds the handler
//	read:  get.go, list.go, watch.go   → watch cache (→ store for old revisions) → represent
//	       a watch (stream.go) is woken (pump.go, workers.go) where it outlasts its handler, else waits
//	write: write.go, delete.go, deletecollection.go → writes (the way of every write) → represent
//	below: subresource.go, scale.go; operation.go → the rooms of package operations, as Config lists them;
//	       carried.go: places of those that go on to other servers
//
// The server's filters call API.ServeHTTP after authentication and authorization.
package endpoints
