// Package authz decides whether a user may do what a request asks: the front
// end's side of authorization (specification: "Authorization"). Authorizers are
// consulted in order; the first that allows or denies is final, and when none
// has an opinion the answer is no. The contract and the engines are libraries
// (authorizer, rbac, node, abac), which the access review service uses too.
//
// Here stand the words of requests and refusals (authz.go), the fixed rules of
// the suite's own services (suite.go), the policy in process (policy.go, feed.go)
// and the metrics around the chain (observe.go). Package webhook below it asks
// other services, package config reads which authorizers there are.
//
// # The policy
//
// Policy follows roles, bindings and, for the node authorizer, pods, volumes and
// attachments in the watch cache:
//
//	loading ── all kinds told ──► synced ── a kind's history lost ──► that kind loaded anew
//
// It stays as it was while a kind is loaded anew; when the store went back it is not
// synced until all are, and positions begin anew. Each change of a role or
// binding is told to listeners (caches of decisions) after the engine has it, with
// the revision, by kind: Positions tells up to which change of each kind a
// decision has seen the policy.
package authz
