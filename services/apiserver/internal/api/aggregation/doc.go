// Package aggregation serves group versions of other servers, as defined by APIServices
// (apiregistration.k8s.io/v1).
//
//	Aggregator.Handler   the handler of a group version that another server serves
//	remote               one such server, and its connections (dial)
//	                     over which requests are proxied (package reverseproxy)
//	check                whether a server is available: the condition Available
//	describe             its resources, for discovery
//	specs                its OpenAPI documents: v3 documents are proxied like
//	                     requests, v2 documents are read on demand and merged
//
// Run performs checks and descriptions, so that no client request waits for them. Requests to a
// server that is not available are rejected at once with 503.
//
// The rules are those of "Kubernetes API Aggregation Layer" in the documentation of Kubernetes
// 1.33.
package aggregation
