// Package informer follows the objects of one resource in the watch cache. It is the only way in
// which parts of the server follow objects: authorization, token caches, definitions, type
// checks of policies, flow control and controllers.
//
//	WaitReady ─► Watch ─► Replace(all objects) ─► Apply(changes) ─► Apply(changes) ...
//	    ▲                                              │
//	    └───────── OnLost ◄ changes were missed ◄──────┘
//
// An Informer never misses a change without notice. If the watch cache no longer has its place in
// the history, or the store was restored from a backup, the informer calls OnLost and then Replace
// with the objects that exist now.
//
// One goroutine, that of Run, calls the functions of Config one at a time. All methods are safe for
// concurrent use.
package informer
