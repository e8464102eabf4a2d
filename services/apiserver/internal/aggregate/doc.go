// Package aggregate serves group versions that other servers answer for, as
// APIServices (apiregistration.k8s.io/v1) say.
//
//	Aggregator.Handler   who answers for a group version, if somebody else does
//	remote               one such server, and its connections (dial)
//	                     to which requests are carried on (package carry)
//	check                whether a server is there: the condition Available
//	describe             what it serves, for discovery
//	specs                its documents of OpenAPI: v3 ones are carried on like
//	                     requests, v2 ones are read when somebody wants them, and merged
//
// Checks and descriptions are made by Run, never on a client's way. Requests to a
// server that is not available are refused at once, with 503.
//
// The rules are those of "Kubernetes API Aggregation Layer" in the documentation of
// Kubernetes 1.33.
package aggregate
