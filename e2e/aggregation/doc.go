// Package aggregation tests aggregated APIs with a small extension server in its own process
// (extension). It tests what clients observe, and whether other requests are unaffected while the
// extension server is killed, paused or disconnected or changes its certificate.
package aggregation
