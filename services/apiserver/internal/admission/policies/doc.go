// Package policies enforces what is written as expressions in the API itself:
// ValidatingAdmissionPolicy and MutatingAdmissionPolicy, with their bindings.
//
// A policy is compiled when a request first matches it; equal expressions share a
// program. Policies, bindings and parameters are read from the watch cache with each
// request, so that what was acknowledged is in force with the next one.
//
//	configured       the policies with bindings, indexed by what they match
//	Validating       evaluates all that match and refuses, warns or notes
//	Mutating         applies what matches, in order
//	asking           what both find out about a request
//	parameters       the objects that a binding names
//
// The rules are those of "Validating Admission Policy" and "Mutating Admission
// Policy" in the documentation of Kubernetes 1.33 (KEP-3488, KEP-3962).
package policies
