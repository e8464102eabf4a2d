// Package expressions compiles the CEL expressions of admission: the match conditions of webhooks
// and policies, and the validations and messages of policies. It defines the variables of the
// expressions and their types as Kubernetes 1.33 does.
//
//	Compiler   compiles single expressions; immutable and safe for concurrent use
//	Policy     checks the expressions of one policy, including variables that the policy
//	           defines; created by Compiler.Policy; not safe for concurrent use
//	Programs   a cache of compiled programs that policies with equal expressions share
//	Scope      compiles the expressions of one policy with the help of Programs
//	Input      the values of the variables for one request
package expressions
