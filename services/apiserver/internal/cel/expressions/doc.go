// Package expressions compiles the CEL expressions of admission: the match conditions of webhooks
// and policies, and the validations and messages of policies. It defines the variables of the
// expressions and their types as Kubernetes 1.33 does.
//
// A Compiler compiles single expressions. It is immutable and safe for concurrent use. A Policy
// compiles the expressions of one admission policy, which may use the variables that the policy
// defines. It comes from Compiler.Policy and is not safe for concurrent use.
package expressions
