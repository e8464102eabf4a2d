// Package policy parses the file of --audit-policy-file and decides by it what is recorded of a
// request. The first matching rule decides. A request that no rule matches is not recorded.
//
// A file with errors is rejected with the messages of Kubernetes. Unknown fields only cause
// warnings, as in Kubernetes. Package build loads the file and reloads it after changes. Package
// audit calls Decide.
package policy
