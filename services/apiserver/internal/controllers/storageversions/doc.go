// Package storageversions records in StorageVersion objects (internal.apiserver.k8s.io) which
// version this replica stores each resource in, and which versions it can decode. A migrator of
// stored objects can then tell when all replicas agree (Kubernetes: KEP-2339). Until the record of
// a resource is written, its writes are rejected with 503. Package build creates a Manager if the
// gates StorageVersionAPI and APIServerIdentity are on. Package bootstrap runs it, and the server
// calls Held before each write. kube-controller-manager removes the records of dead replicas.
//
// Custom resources follow their definitions: Define ─► Run. The record of one is owned by its
// definition, so that the garbage collector deletes both. Writes of a custom resource wait for the
// first attempt instead of being rejected, because clients often write one immediately after its
// definition.
package storageversions
