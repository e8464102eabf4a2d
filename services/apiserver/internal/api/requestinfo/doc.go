// Package requestinfo determines what a request does: its verb, group, version, resource,
// subresource, namespace and name, and the resource of the API set on which it acts.
//
// Resolve is the only function that parses the path of a request. The server both authorizes and
// executes the Info that Resolve returns, so a request cannot be authorized as one operation and
// executed as another.
package requestinfo
