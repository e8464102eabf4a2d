// Package build is the composition root of the API server. It constructs the parts of the server
// from the options.
//
// The parts are grouped by subject, one group per file:
//
//	network.go         the listener, and connections to webhooks, extension servers and peers
//	stores.go          stores, encryption, streams of changes
//	caches.go          built-in kinds and their cached objects
//	apisets.go         API sets, custom resources, documents about the API
//	security.go        audit, authorization, flow control
//	authentication.go  bearer tokens, and the chain of authenticators
//	admission.go       the chain of admission plugins
//	policies.go        the plugins for admission policies and webhooks
//	handlers.go        the writer, the handlers of the API, the filters
//	controllers.go     controllers, health checks of parts that start with the server
//
// Each group is a small struct that one constructor returns. A constructor takes the options and
// the groups that it needs. It adds tasks to run, and functions that release the parts, to the
// lifecycle. build.go calls the constructors in the order of their dependencies, and runs the
// lifecycle.
//
// The command of the service calls Run. One goroutine constructs all parts before any task runs.
// The structs that the constructors return are constant from then on.
package build
