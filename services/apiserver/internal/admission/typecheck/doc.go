// Package typecheck tells in the status of a ValidatingAdmissionPolicy what is wrong
// with its expressions for the kinds that it is for: fields that these do not have,
// comparisons of what cannot be equal. Such a policy is enforced all the same.
//
//	kinds       the kinds that rules name
//	declare     the types that CEL is told of a schema
//	check       the warnings
//	keeper      the status
//
// In Kubernetes this is the work of a controller of kube-controller-manager,
// validatingadmissionpolicy-status. A Keeper gives the answers of that controller (of
// 1.33), as the same field manager, so that both may run; and it looks again when the
// definitions of custom resources change. Every replica runs one: what a status says
// already is not written again.
package typecheck
