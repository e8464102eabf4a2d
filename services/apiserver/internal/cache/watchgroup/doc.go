// Package watchgroup wakes the watchers that a change concerns, and no others. Watchers with the
// same scope form a group: one object, one name, one namespace, one value of an indexed field, or
// all objects. A watcher that has read everything waits on the Wake of its group. The first change
// in the scope takes that Wake and wakes all its watchers: it closes a channel for those that wait,
// and calls resume for those that parked.
//
// The lock of the resource's store guards Groups. Wakes are notified after it is released.
package watchgroup
