// Package definition says what becomes of the definitions of custom resources:
// which names they get, whether they are served, what their conditions tell,
// and what happens to their objects when they go.
//
// # Names
//
// What a definition gets follows from the set of all definitions of its group
// and from nothing else (Decide), so every replica comes to the same result at
// the same revision of the store, and nobody has to be elected: what a
// definition was given once, which its status tells, stays its own; among those
// that ask for the same name, the one that was created first wins. Names is
// that function over a set that changes.
//
// # Status
//
// A definition is served because of what Names decides, not because of what its
// status says; the status tells clients afterwards. A Keeper writes it. It
// takes the way of every other write, so a replica that was slower finds its
// write refused, looks again and finds nothing to do.
//
//	created ──► names accepted ──► established ──► terminating ──► gone
//	                │    ▲              │   names that are asked for later may be
//	                ▼    │              │   refused; what is established stays so
//	          names refused             ▼
//
// A definition of a built-in resource, or one whose objects would share keys with those of a built-in
// kind, is established too. But its resource is not served, and its objects are not deleted with it
// (Config.Definable, HasOwnPlace).
//
// # The end
//
// A definition that is deleted keeps the finalizer
// customresourcecleanup.apiextensions.k8s.io until its objects are gone. A
// Cleaner on every replica deletes them, respecting their finalizers, and
// starts anew wherever another one left off.
package definition
