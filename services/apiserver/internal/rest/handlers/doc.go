// Package handlers serves the requests of the resource API, with one file per operation of the
// protocol. It takes the properties of a kind from its declaration (package registry), reads
// objects from the watch cache and writes them to the store.
//
//	route.go finds the handler
//	read:  get.go, list.go, watch.go   → watch cache (→ store for old revisions) → responsewriters
//	       a watch (stream.go) that outlives its handler runs on demand in shared goroutines
//	       (package workers); any other watch runs in its handler
//	write: write.go, delete.go → writes (every write) → responsewriters
//	subresources: subresource.go → the packages below subresources, as Config lists them;
//	       reverseproxy.Limit bounds the number of proxied requests
//
// The server's filters call API.ServeHTTP after authentication and authorization. A Call belongs to
// one request.
package handlers
