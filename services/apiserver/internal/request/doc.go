// Package request is what every later room knows about the request at hand:
// the parsed path (Info), who asks (User), and the warnings collected for the
// answer. The server's filters put these into the context, in the order of
// their list; endpoints, admission and authorization read them.
package request
