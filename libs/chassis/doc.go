// Package chassis is what the small services of the suite have in common: an
// HTTPS server with health and metrics, and a way to the API server. A service
// adds its routes to Engine, its checks to Health, and gives its long tasks to
// Run.
package chassis
