// Package request holds the state of a request that filters, authorization, admission and endpoints
// share: what the request does (Operation), the authenticated user (User), and the warnings
// collected for the response. The server's filters attach this state to the context in the order of
// the filter chain.
//
// Resolve is the only function that parses a path. The Operation that it returns is both authorized
// and executed, so a request cannot be authorized as one operation and executed as another.
//
// Most state lives in one context value that Carry attaches. The Set functions fill it; only
// filters call them, before other goroutines have the request. The With functions attach a context
// value of their own.
package request
