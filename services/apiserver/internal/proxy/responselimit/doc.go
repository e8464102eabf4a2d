// Package responselimit bounds the cost of other servers' responses. The proxy of
// k8s.io/apimachinery/pkg/util/proxy holds whole HTML pages in memory to rewrite links,
// uncompressed and of any length. It also forwards any number of informational responses. Each one
// removes headers that this server has set. HTTP/2 clients answer any number of pings.
//
//	LimitTransport         limits the heads and the pings that a transport receives
//	PageLimiter.Transport  a round tripper that excludes large pages from rewriting, drops
//	                       informational responses, and removes headers that only this server may set
//	MaxHead                the maximum size of the head of a response
package responselimit
