// Package app assembles the console service, which shows a suite to people: options,
// who may look (package access), what replicas tell (packages scrape and view), the
// page (package page), and an HTTPS server.
//
// It only reads. It is ready when the API server can be reached, keeps what it has seen
// in the last minute in memory and nothing elsewhere, so any number of replicas may run.
// It shuts down along the timeline of package serving. main calls it.
package app
