// Package app assembles the authn-webhook service, the suite's authority on
// bearer tokens: options, authenticators, the watches that they need, and an
// HTTPS server that answers token reviews at / and /authenticate.
//
// It is ready when the API server can be reached and the watches are synced, and
// shuts down along the timeline of package serving. It keeps no state of its own,
// so any number of replicas may run. main calls it.
package app
