// Package storageversions says in objects (StorageVersion, internal.apiserver.k8s.io)
// which version this replica stores each built-in resource in, and which it can read, so
// that whoever migrates stored objects knows when all replicas agree (Kubernetes:
// KEP-2339). Until that is said of a resource, writes of it are held with 503. The app
// makes a Manager where the gates StorageVersionAPI and APIServerIdentity are on; the
// bootstrap keeps it at work, the server asks it before each write. What dead replicas
// said is removed by kube-controller-manager. Of custom resources nothing is said: they
// are stored in the version that their definition names.
package storageversions
