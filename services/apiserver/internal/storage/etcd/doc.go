// Package etcd implements the storage contract on etcd 3.4 or newer. Progress notifications of an
// etcd before 3.4.31 and 3.5.13 are unreliable and not used (confirm.go). Together with the
// embedded server below it, this is the only production code that uses etcd.
//
// A Store is created over a client: one from Dial for an external cluster, or one of the embedded
// server. It keeps no objects. Its only states are the lease that short-lived values share
// (write.go) and the streams of running watches (watch.go). A write is sent once: if its outcome is
// unknown, the error says so (storage.ErrUnavailable) and nothing is retried. Reads of the newest
// revision, which many requests wait for, are repeated in parallel (store.go).
//
// The package also holds what a control plane needs of etcd: Compactor compacts old history,
// coordinated with other API servers on the same etcd. Elector elects one replica for a task.
//
// Package build passes a Store to the watch cache, the handlers and the fan-out.
package etcd
