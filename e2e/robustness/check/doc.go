// Package check checks whether a history keeps the guarantees of watches, reads and writes. Each
// guarantee has a name and an independent checker:
//
//	ordered       events of a watch arrive in the order of revisions
//	unique        no change is delivered twice
//	atomic        an event is one whole version that was stored, as it was stored
//	reliable      no change between the beginning and the end of a watch is missing
//	resumable     a watch that resumes at a revision continues with the next change
//	bookmarkable  a bookmark comes after all changes that it covers, and before the others
//	consistent    a read returns the state at its revision
//	fresh         a read of the newest state returns all that was known before it began
//	linearizable  operations on one object have an order that explains the responses
//	exact         at the end an informer's store equals the state in etcd
//
// The tests of the robustness package call All on the history of their clients.
package check
