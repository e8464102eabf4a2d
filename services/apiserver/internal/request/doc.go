// Package request is what every later room knows about the request at hand:
// what it does (Operation), who asks (User), and the warnings collected for the
// answer. The server's filters put these into the context, in the order of
// their list; endpoints, admission and authorization read them.
//
// Resolve is the only place that reads a path: the Operation that it makes is
// authorized and then executed, so that nothing can be allowed as one thing and
// done as another.
package request
