// Package encryption encrypts values wherever they leave the process: in the store, and in the
// stream of changes. It owns the configuration of resources and providers, the path of values to
// and from the store, and the metrics and health of both.
//
//	writes, endpoints, … ─► Store ──► storage (etcd)            sealed below here
//	watch cache ◄─ Source ◄─ fan-out ◄──┘
//
// Store and Source cover the two paths of values. Above them values are plain, and carry their
// stored form (storage.Seal), by which histories are compared. Compare-and-swap is by revision, so
// it does not depend on values.
//
// # Providers
//
// A Set is one immutable configuration: a chain of providers per resource or group of resources.
// The first provider encrypts. Decryption uses the first provider with a matching prefix. A value
// that would be encrypted differently today is stale, so an update without changes rewrites it.
// Values without a rule are not encrypted, and must not look encrypted. The resource is derived
// from the key alone (Resources), so no value waits for a definition. Keys of no resource, such as
// port ranges and the addresses of replicas, are left unchanged.
//
// # Converted values
//
// A Converter, if configured, receives each value after decryption and returns it in its current
// stored form. A converted value is stale. A value that cannot be decoded is corrupt.
//
// # Unreadable values
//
// A corrupt value is reported as *storage.CorruptObjectError, alone or beside its key. It does
// not affect other values: the watch cache keeps its key.
//
// # States of Live, which holds the current Set
//
//	the file changed ─► new Set built ── it is healthy ──► it replaces the old Set, which
//	                         │                            closes after a grace period
//	                         │ it is invalid, or a plugin is unhealthy
//	                         └──► the old Set stays, and the failure is counted and logged; with an
//	                              unhealthy plugin, each later check of the file builds it again
//
// A write encrypts and a read decrypts with the Set that it started with. When a key was removed,
// the Source ends its stream with *storage.ReopenedError, and the cache reads everything again
// without ending watches. When a corrupt value has become readable (through another
// configuration, or a recovered plugin), watchers have missed it: the cache reloads as if history
// were compacted.
//
// Package build creates a Live from flags, wires Store and Source, and runs Live.
package encryption
