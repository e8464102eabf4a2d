// Package policy reads the file of --audit-policy-file and decides by it how much is told
// of a request: the first rule that fits counts, and what none fits is not told at all.
//
// A file with errors is refused with the words of Kubernetes, but fields that nobody
// knows are only warned of, as there. Package build reads it at the start and follows it;
// package audit asks.
package policy
