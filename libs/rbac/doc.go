// Package rbac evaluates roles and bindings (specification: "Authorization",
// RBAC). An Engine holds compiled roles and an index of bindings by subject;
// whoever follows the objects (the API server's front end from its watch cache,
// the access review service from informers) tells it of changes, and anybody
// asks it for decisions.
//
// # States
//
// An Engine publishes immutable Snapshots. Update changes a private copy-on-write
// image and publishes it in one step, so a decision is made on one state of the
// policy, takes no lock and is never delayed by a change. A snapshot carries its
// Position: up to which resourceVersion it has seen the changes of each of the
// four kinds. The kinds are followed by streams of their own, so one number for
// all of them would claim what was not seen yet. Positions only grow.
//
// # What a decision costs
//
// One lookup for the user and one for each group, at the cluster's scope and in
// the request's namespace; then, for each binding found, the rules of its role
// that can concern the resource at all. Other bindings cost nothing.
//
// Covers and Escalation tell what a user would have to hold to grant rules;
// Aggregate computes the rules of an aggregated cluster role.
package rbac
