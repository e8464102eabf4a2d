// Package app assembles the console service, which shows a suite to people: options, authorization
// (package access), the data of replicas (packages scrape and view), the page (package page), and
// an HTTPS server.
//
// The console is read-only. It is ready when the API server is reachable. It keeps the samples of
// the last minute in memory only, so any number of replicas may run. It shuts down in the phases of
// package serving. main calls it.
package app
