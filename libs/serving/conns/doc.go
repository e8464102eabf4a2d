// Package conns protects a server on the level of connections, before a request has a user.
//
//	Listen, Listener     TLS handshakes: a few are computed at a time, shared fairly by address
//	Conn                 the bytes that a client has acknowledged; writes that leave together
//	HeaderLimits         the large header sections that are parsed at a time, and their bytes
//	ServeHTTP2           clients that flood a connection with resets or control frames are read
//	                     more slowly (pacing.go)
//	Network              the key by which all of these count a client
//
// A connection belongs to one goroutine that reads and one that writes. Everything else is safe for
// concurrent use. Package serving connects the parts; package exchange reads Conn to find clients
// that have stalled.
package conns
