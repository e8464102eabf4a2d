// Package app assembles the authz-webhook service, the suite's authority on
// permission: options, the policy that it follows at the API server, the
// authorizers over it, and an HTTPS server that answers access reviews at / and
// /authorize.
//
// It is ready when the API server can be reached and the policy was listed, and
// shuts down along the timeline of package serving. It keeps no state of its own,
// so any number of replicas may run. main calls it.
package app
