// Package snapshot saves, inspects and restores snapshots of etcd, in the format of
// etcdctl and etcdutl.
//
// Save copies the content of a running member. Restore creates the data folder of one
// member from a snapshot, so that a member of a new cluster, or the etcd embedded in an
// API server, starts from it. Status describes a snapshot file.
package snapshot
