// Package typecheck reports type errors of a ValidatingAdmissionPolicy's expressions in its status:
// missing fields of the matched kinds, and comparisons of incompatible types. The policy is
// enforced nevertheless.
//
//	kinds       the kinds that rules name
//	declare     the CEL types of a schema
//	check       the warnings
//	controller  the status
//
// In Kubernetes, a controller of kube-controller-manager does this work,
// validatingadmissionpolicy-status. A Controller produces the results of that controller (of 1.33)
// as the same field manager, so that both may run. It also checks again when definitions of custom
// resources change. Every replica runs a Controller. It does not write a status that is already
// correct.
package typecheck
