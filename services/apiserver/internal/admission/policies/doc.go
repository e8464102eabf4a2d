// Package policies enforces the admission policies that are API objects: ValidatingAdmissionPolicy
// and MutatingAdmissionPolicy, with their bindings.
//
// A policy is compiled when a request first matches it. Equal expressions share a program. Each
// request reads policies, bindings and parameters from the watch cache, so that an acknowledged
// write applies to the next request.
//
//	policySet        the policies with bindings, indexed by what they match
//	Validating       evaluates all matching policies and rejects, warns or annotates
//	Mutating         applies all matching policies in order
//	requestEvaluation
//	                 the evaluation steps that both share
//	Parameters       the objects to which bindings refer
//
// The rules are those of "Validating Admission Policy" and "Mutating Admission Policy" in the
// documentation of Kubernetes 1.33 (KEP-3488, KEP-3962).
package policies
