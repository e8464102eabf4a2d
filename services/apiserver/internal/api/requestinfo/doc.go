// Package requestinfo says what a request does: its verb, group, version, resource, subresource,
// namespace and name, and the resource of the API set that it acts on.
//
// Resolve is the only function that parses a path. The Info that it returns is both authorized and
// executed, so a request cannot be authorized as one operation and executed as another.
package requestinfo
