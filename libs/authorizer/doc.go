// Package authorizer is the contract of those who decide whether a user may do
// what a request asks, and of those who ask them. The engines (rbac, node, abac)
// implement Authorizer; the API server's front end and the access review service
// consult them, each in a Chain. It keeps no state.
//
// The conversions between Attributes and the specification's access reviews
// stand here too, so that both sides of the wire read a review the same way.
package authorizer
