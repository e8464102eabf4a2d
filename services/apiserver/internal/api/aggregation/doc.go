// Package aggregation serves the group versions of extension servers, which APIServices
// (apiregistration.k8s.io/v1) define.
//
//	aggregator.go  Aggregator: its dependencies and the handlers of group versions
//	directory.go   maps group versions to extension servers
//	remote.go      remote: one extension server; proxies requests (package reverseproxy)
//	dial.go        connects to extension servers
//	schedule.go    Run: decides which servers are checked when
//	check.go       checks whether a server is available
//	condition.go   the condition Available of an APIService
//	describe.go    reads the resources of a server
//	discovery.go   returns the group versions of APIServices for discovery
//	specs.go       reads the OpenAPI documents of a server; v3 documents are proxied,
//	               v2 documents are read on demand and merged
//	metrics.go     Prometheus metrics
//
// Aggregator.Run checks and describes servers in the background, so that no client request waits
// for that. Requests to a server that is not available are rejected immediately with 503.
//
// The rules are those of Kubernetes 1.33; see "Kubernetes API Aggregation Layer":
// https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/apiserver-aggregation/
package aggregation
