// Package build assembles the API server from its options: store, fan-out, watch cache, endpoints,
// filters and background tasks.
//
// options.go parses, completes and validates options. build.go creates the parts and connects them.
// run.go runs them. main calls Run.
package build
