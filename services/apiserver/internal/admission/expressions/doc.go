// Package expressions compiles the CEL expressions of admission: the match
// conditions of webhooks and policies, and what policies check and tell. It
// knows the variables that they see, and their types, as Kubernetes 1.33 does.
//
// A Compiler is immutable and safe for concurrent use; a Policy is for one
// goroutine.
package expressions
