// Package build assembles the API server from its options: store, fan-out, watch
// cache, endpoints, filters, and the work that goes on beside the requests.
//
// options.go parses, completes and validates; build.go makes the parts and says
// who knows whom; run.go runs them. main calls it.
package build
