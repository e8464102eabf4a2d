// Package app assembles the authz-webhook service, the suite's authorizer: options, the policy that
// it follows at the API server, the authorizers that use it, and an HTTPS server that serves
// access reviews at / and /authorize.
//
// It is ready when the API server is reachable and the policy is listed, and shuts down in the
// phases of package serving. It keeps no state of its own, so any number of replicas may run. main
// calls it.
package app
