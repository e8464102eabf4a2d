// Package aggregate serves group versions that other servers answer for, as
// APIServices (apiregistration.k8s.io/v1) say.
//
//	Aggregator.Handler   who answers for a group version, if somebody else does
//	remote               one such server: requests are carried on to it, as the
//	                     user that was authenticated here
//	check                whether a server is there: the condition Available
//	describe             what it serves, for discovery
//
// Checks and descriptions are made by Run, never on a client's way. Requests to a
// server that is not available are refused at once, with 503.
//
// The rules are those of "Kubernetes API Aggregation Layer" in the documentation of
// Kubernetes 1.33.
package aggregate
