// Package watchgroup wakes the watchers that a change concerns, and no others. Watchers with the
// same interest form a group: one object, one name, one namespace, one value of an indexed field,
// or all objects. A watcher that has read everything arms its group. The first change of the group
// fires one Wake for all of them: it closes a channel for those that wait, and calls resume for
// those that parked.
//
// The store of the resource guards Groups by its lock, and releases wakes without it.
package watchgroup
