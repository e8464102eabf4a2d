// Package storageversions says in objects (StorageVersion, internal.apiserver.k8s.io)
// which version this replica stores each resource in, and which it can read, so
// that whoever migrates stored objects knows when all replicas agree (Kubernetes:
// KEP-2339). Until that is said of a resource, writes of it are held with 503. The app
// makes a Manager where the gates StorageVersionAPI and APIServerIdentity are on; the
// bootstrap keeps it at work, the server asks it before each write. What dead replicas
// said is removed by kube-controller-manager.
//
// Custom resources follow their definitions: Define ─► Run. What is said of one is owned by
// its definition, and goes with it where a garbage collector runs; writes of one wait for
// the first try instead of being refused, as who defined it writes it next.
package storageversions
