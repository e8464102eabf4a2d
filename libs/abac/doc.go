// Package abac decides by a file of policies. Each line is one JSON object of the
// kind Policy in abac.authorization.kubernetes.io/v1beta1; empty lines and lines
// that begin with # are not looked at:
//
//	{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",
//	 "spec":{"user":"bob","namespace":"projectCaribou","resource":"pods","readonly":true}}
//
// (on one line). A policy allows what all that it says matches, and nothing that
// it does not say: without a namespace it allows cluster-scoped resources alone.
// Sub-resources are allowed with their resource. A star stands for anything; for
// user and group, for everybody who is authenticated.
//
// Policies are read once, at start, and do not change.
package abac
