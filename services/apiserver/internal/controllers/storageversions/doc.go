// Package storageversions maintains StorageVersion objects (internal.apiserver.k8s.io, KEP-2339).
// Each object belongs to one resource. In it, every replica records the version in which it stores
// the resource, and the versions that it can decode and serves. A storage migrator reads from the
// object whether all replicas store the same version.
//
// A Manager writes the records of this replica. It handles two kinds of resources:
//
//   - The records of built-in resources are fixed when the Manager is created. Update writes them.
//     Until a record is written, the server rejects writes of its resources with 503.
//   - The records of custom resources follow their CustomResourceDefinitions. Define queues the
//     records of new and changed definitions, and Run writes them. A definition owns its record, so
//     the garbage collector deletes the record with the definition. Clients often write a custom
//     resource immediately after its definition. Therefore such a write waits, for at most
//     maxCustomWait, until Run has tried once to write the record. If that fails, the server rejects
//     writes of the resource with 503 until a later attempt succeeds.
//
// Package build creates a Manager if the gates StorageVersionAPI and APIServerIdentity are on.
// Package bootstrap calls Update. The server calls WritesBlocked before each write.
// kube-controller-manager removes the records of dead replicas.
package storageversions
