// Package check decides whether a history keeps what a watch, a read and a
// write promise. Each guarantee has a name and a checker of its own, which
// knows nothing of the others:
//
//	ordered       events of a watch come in the order of revisions
//	unique        no change is told twice
//	atomic        an event is one whole version that was stored, as it was stored
//	reliable      no change between the beginning and the end of a watch is left out
//	resumable     a watch that goes on after a revision continues right there
//	bookmarkable  a bookmark comes after all that it covers, and before the rest
//	consistent    a read shows the state at the revision that it names
//	fresh         a read of the newest state shows what was known before it began
//	linearizable  operations on one object have an order that explains the answers
//	exact         an informer's store is the truth at the end
//
// The tests of the robustness package call All on what their clients recorded.
package check
