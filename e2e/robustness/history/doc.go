// Package history contains the recorded data of a robustness test: operations, reads, watches and
// informers, and the changes in etcd to compare them with. Clients (package traffic) record it, and
// checkers (package check) read it. It can be saved as files for analysis.
//
// Each write puts a unique mark into its object, which identifies the version in every response.
// Times are relative to the beginning of the history.
package history
