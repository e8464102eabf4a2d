// Package rbac evaluates roles and bindings (specification: "Authorization", RBAC). An Engine holds
// compiled roles and an index of bindings by subject. The API server's front end feeds it changes
// from its watch cache, the access review service from informers.
//
// # States
//
// An Engine publishes immutable Snapshots. Update changes a private copy-on-write image and
// publishes it in one step. So a decision uses one state of the policy, takes no lock and is never
// delayed by a change. A snapshot carries its Position: the resourceVersion up to which it includes
// the changes of each of the four kinds. Each kind has its own stream, so one number for all of
// them would include unseen changes. Positions only grow.
//
// # Cost of a decision
//
// A decision takes one lookup for the user and one for each group, at cluster scope and in the
// request's namespace. For each binding found it evaluates the rules of its role that can concern
// the resource. Other bindings cost nothing.
//
// Covers and Escalation return the permissions that a user lacks for granting rules. Aggregate
// computes the rules of an aggregated cluster role.
package rbac
