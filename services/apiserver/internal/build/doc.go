// Package build is the composition root of the API server. It constructs the parts from the
// options.
//
// The parts are grouped by subject, one file each:
//
//	network.go         the listener, and connections to webhooks, extension servers and peers
//	stores.go          stores, encryption, streams of changes
//	caches.go          built-in kinds and their cached objects
//	apisets.go         API sets, custom resources, documents about the API
//	security.go        audit, authorization, flow control; authentication.go
//	admission.go       the chain of plugins; policies.go for policies and webhooks
//	handlers.go        the writer, the handlers of the API, the filters
//	controllers.go     controllers, health checks of what starts with the server
//
// Each group is a small struct that one constructor returns. A constructor takes the options
// and the groups that it needs. build.go calls the constructors in the order of their
// dependencies, and runs and releases what they add.
//
// The command of the service calls Run. Everything is constructed by one goroutine before anything
// runs, and does not change afterwards.
package build
