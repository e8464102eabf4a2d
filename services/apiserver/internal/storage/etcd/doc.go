// Package etcd implements the storage contract on etcd 3.4 or newer; what an etcd
// before 3.4.31 and 3.5.13 says of its progress is not believed (trust.go). It is
// the only production code, together with the embedded server below it, that
// knows etcd.
//
// A Store is made over a client: one from Dial for a cluster elsewhere, or one
// of the embedded server. It keeps no objects; its only states are the lease
// that short-lived values share (lease.go) and the streams of running watches
// (watch.go). A write is sent once: when its outcome is unknown the error says
// so (storage.ErrUnavailable) and nothing is retried. Reads of the newest revision,
// for which many wait, are asked again beside themselves (prompt.go).
//
// Beside the contract the package holds what a control plane needs of etcd:
// Compactor forgets old history, in agreement with other API servers on the
// same etcd; Elector chooses one replica for a task.
//
// Called by app, which wires a Store into the watch cache, the endpoints and
// the fan-out.
package etcd
