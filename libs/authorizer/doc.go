// Package authorizer is the contract between authorizers and their callers. The engines (rbac,
// node, abac) implement Authorizer. The API server's front end and the access review service call
// them, each in a Chain. It keeps no state.
//
// The conversions between Attributes and the specification's access reviews are here too, so that
// both sides of the wire interpret a review in the same way.
package authorizer
