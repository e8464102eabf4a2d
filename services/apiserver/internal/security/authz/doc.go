// Package authz decides whether a user may perform a request. It is the API server's side of
// authorization (specification: "Authorization"). Authorizers are called in order. The first that allows or
// denies is final. If none has an opinion, the request is rejected. The contract and the engines
// are libraries (authorizer, rbac, node, abac), which the access review service uses too.
//
// This package contains the attributes and messages of requests (authz.go), the fixed rules of the
// suite's own services (suite.go), the policy in process (policy.go, feed.go) and the metrics
// around the chain (observe.go). Package authzwebhook calls external services. Package authzconfig
// reads the list of authorizers.
//
// # The policy
//
// LocalPolicy follows roles, bindings and, for the node authorizer, pods, volumes and
// attachments in the watch cache:
//
//	loading ── all kinds loaded ──► synced ── history of a kind lost ──► that kind reloads
//
// The policy stays as it was while a kind reloads. When the store's revision goes backwards, the
// policy is not synced until all kinds are reloaded, and positions start again. After the engine
// has applied a change of a role or binding, listeners (caches of decisions) receive it with its
// revision, by kind. A position is the last change of each kind that a decision includes.
package authz
