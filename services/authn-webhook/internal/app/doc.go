// Package app assembles the authn-webhook service, the suite's authenticator of bearer tokens:
// options, authenticators, the watches that they need, and an HTTPS server that serves token
// reviews at / and /authenticate.
//
// It is ready when the API server is reachable and the watches are synced, and shuts down in the
// phases of package serving. It keeps no state of its own, so any number of replicas may run. main
// calls it.
package app
