// Package build assembles the API server from its options: store, fan-out, watch cache, endpoints,
// filters and background tasks.
//
// build.go creates the parts and connects them. run.go runs them. The command of the service calls
// Run.
package build
