// Package build is the composition root of the API server. It constructs the parts from the options.
//
// The parts are grouped by subject: listener, base, catalogs, stores, caches, API sets, custom
// resources, security, delegates and controllers. Each group is a small struct that one constructor
// returns. A constructor takes the options and the groups that it needs. build.go calls the
// constructors in the order of their dependencies; lifecycle.go runs and releases what they add.
//
// The command of the service calls Run. Everything is constructed by one goroutine before anything
// runs, and does not change afterwards.
package build
