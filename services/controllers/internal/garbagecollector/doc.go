// Package garbagecollector deletes objects whose owners do not exist any more, and carries out
// foreground deletion and orphaning (specification: garbage collection).
//
// The graph reports which nodes need work: the dependents of deleted objects, owners that wait for
// their dependents, owners with the orphan finalizer, and objects with new or doubtful owners. The
// graph is only a hint. Before a worker deletes an object or changes its owner references, it reads
// the object and its owners from the API server, and it deletes under the condition that both are
// unchanged. So a stale graph delays work, but it never deletes an object that has an owner. Owners
// that verifiably do not exist are remembered, because many dependents share them.
//
// A restart loses no work: the initial lists of the graph contain every object whose owner is
// missing and every owner that waits.
//
// Package app runs a Controller on the leader.
package garbagecollector
