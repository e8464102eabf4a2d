// Package encryption keeps values sealed wherever they leave the process: in the store,
// and in the stream of changes. It owns the configuration of what is sealed by whom,
// the way of values to and from the store, and the metrics and health of that.
//
//	writes, endpoints, … ─► Store ──► storage (etcd)            sealed below here
//	watch cache ◄─ Source ◄─ fan-out ◄──┘
//
// Store and Source stand at the two places where values pass. Above them values are
// plain, and carry with them what is stored (storage.Seal): histories are compared by
// that. Compare-and-swap is by revision, so it does not see values at all.
//
// # Who seals what
//
// A Set is one configuration, immutable: per resource, or group of resources, a chain of
// providers. The first seals; whichever prefix fits opens, from the first on. A value
// that would be sealed otherwise today is stale, which lets an update that changes
// nothing write it anew. What no rule covers is not sealed, and must not look as if it
// was. The resource of a key is read from the key alone (Resources), so that no value
// waits for a definition. Keys that belong to no resource, such as ranges of ports and
// the addresses of replicas, are left alone.
//
// # Converted values
//
// A Converter, if there is one, gets each value after it is decrypted and returns it in the form
// in which it is stored today. A converted value is stale. One that cannot be decoded is unreadable.
//
// # What cannot be opened
//
// Such a value is told as *storage.UnreadableError, alone or beside its key, and stands
// in nobody's way: the watch cache keeps its key.
//
// # States of Live, which has the current Set
//
//	built ── the file changed, the new Set is well ──► swapped ── grace ──► the old closed
//	              │ it is bad, or its plugins are not well
//	              └──► the old one stays; counted, logged; in the latter case it is
//	                   tried again with each look at the file
//
// A write seals and a read opens with the Set that it began with. When a key went away, the
// Source ends its stream with *storage.ReopenedError, and the cache reads everything again
// without ending watches. When a value that was unreadable is readable now (another
// configuration, a plugin that is back), watchers have missed it: the cache reloads,
// as if history was gone.
//
// Package app makes a Live from flags, wires Store and Source, and runs Live.
package encryption
