// Package typecheck reports type errors of a ValidatingAdmissionPolicy's expressions in its status:
// missing fields of the matched kinds, and comparisons of incompatible types. The policy is
// enforced nevertheless.
//
// The files are:
//
//	kinds.go       determines the kinds that the rules of a policy name
//	served.go      finds the schemas of served kinds
//	declare.go     converts a schema to CEL types
//	check.go       compiles expressions and returns warnings
//	controller.go  writes the warnings to the status
//
// In Kubernetes, the controller validatingadmissionpolicy-status in kube-controller-manager does
// this. A Controller produces the same results as that controller in 1.33 and uses the same field
// manager, so both may run at the same time. In addition, a Controller checks policies again when
// definitions of custom resources change. Every replica of the server runs a Controller, which does
// not write a status that is already correct.
package typecheck
