// Package responselimit bounds the cost of other servers' responses in a proxy
// (k8s.io/apimachinery/pkg/util/proxy). To rewrite links, the proxy holds whole HTML pages in
// memory, uncompressed and of any length. It also forwards any number of informational responses.
// Each one removes headers that this server has set.
//
//	PageLimiter.Transport  a round tripper that excludes large pages from rewriting, drops
//	         informational responses, and removes headers that only this
//	         server may set
//	MaxHead  the maximum size of the head of a response
package responselimit
