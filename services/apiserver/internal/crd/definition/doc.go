// Package definition implements the life cycle of CustomResourceDefinitions: which names they get,
// whether they are served, what their conditions report, and the deletion of their objects.
//
// # Names
//
// The names that a definition gets depend only on the set of all definitions of its group (Decide).
// So every replica reaches the same result at the same revision of the store, and no leader is
// needed. A definition keeps the names that its status records. Among definitions that ask for the
// same name, the one that was created first wins. NameConflicts applies Decide to a changing set.
//
// # Status
//
// Whether a definition is served depends on its Decision, not on its status. The status
// informs clients afterwards. A Controller writes it through the same path as every other write.
// The write of a slower replica is rejected as a conflict. The replica then reads the definition
// again and finds nothing to do.
//
//	created ──► names accepted ──► established ──► terminating ──► gone
//	                │    ▲              │   later names may be rejected;
//	                ▼    │              │   an established definition stays so
//	          names rejected            ▼
//
// A definition of a built-in resource, or one whose objects would share keys with those of a
// built-in kind, is established too. But its resource is not served, and its objects are not
// deleted with it (Config.Definable, HasOwnKeyPrefix).
//
// # Deletion
//
// A deleted definition keeps the finalizer customresourcecleanup.apiextensions.k8s.io until its
// objects are gone. A cleaner on every replica deletes them, respecting their finalizers, and can
// continue where another replica stopped.
package definition
