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
// A line without apiVersion has the unversioned form of old policy files, in which a
// field that is not set matches everything (see parseV0). Load logs a warning for it:
//
//	{"user":"bob","namespace":"projectCaribou","resource":"pods","readonly":true}
//
// Unknown fields are errors in both forms: a mistyped restriction must not allow more.
//
// Policies are read once, at start, and do not change.
package abac
