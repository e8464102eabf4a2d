// Package abac decides by a file of policies. Each line is one JSON object of the kind Policy in
// abac.authorization.kubernetes.io/v1beta1. Empty lines and lines that start with # are ignored:
//
//	{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",
//	 "spec":{"user":"bob","namespace":"projectCaribou","resource":"pods","readonly":true}}
//
// (on one line). A policy allows requests that match all its fields. An absent field matches only
// requests without the attribute: without a namespace the policy allows only cluster-scoped
// resources. Subresources are allowed with their resource. A star matches any value; for user and
// group, every authenticated user.
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
