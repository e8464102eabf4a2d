// Package handlers serves the requests of the resource API, with one file per operation of the
// protocol. It takes the properties of a kind from its declaration (package registry), reads
// objects from the watch cache and writes them to the store.
//
//	route.go finds the handler
//	read:  get.go, list.go, watch.go   → watch cache (→ store for old revisions) → represent
//	       a watch (stream.go) that outlives its handler runs on demand in shared goroutines
//	       (pump.go, workers.go); any other watch runs in its handler
//	write: write.go, delete.go, deletecollection.go → writes (every write) → represent
//	below: subresource.go, scale.go; operation.go → the packages below operations, as Config lists them;
//	       carried.go: limit of requests that are proxied to other servers
//
// The server's filters call API.ServeHTTP after authentication and authorization. A Call belongs to
// one request.
package handlers
