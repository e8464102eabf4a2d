// Package servicerunner is the common base of the suite's small services: an HTTPS server with
// health checks and metrics, and a client of the API server. A service adds its routes to Engine
// and its checks to Health, and passes its long-running tasks to Run.
package servicerunner
