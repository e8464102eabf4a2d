// Package flowcontrol shares the server among its clients: API priority and
// fairness (KEP-1040; specification: flowcontrol.apiserver.k8s.io/v1).
//
// A request is classified by the flow schemas, in the order of their precedence.
// The first that matches names a priority level, which has a number of seats. A
// request takes as many as its work is worth (Width) for as long as it runs. When
// a level has none left, a request is refused, or waits in one of the level's
// queues: the flow it belongs to (its schema, and the user or the namespace) is
// dealt a few of them, and the shortest takes it. Queues are served fairly by
// virtual time: the one whose next request would end first, had all queues been
// served at once in equal shares, comes next.
//
// The last eighth of a level's seats is for flows that have none, so that one which asks
// for much at once keeps nobody else waiting. Kubernetes has no such reserve.
//
// Seats that a level does not need are lent to others: every Period all limits are
// set anew by what was asked for.
//
//	Objects → Compiler → Config    what the objects say; only what changed is made anew
//	index                          the schemas by whom they are about, so that a request
//	                               is not compared with those about others
//	Controller                     the levels as they are; Begin admits a request
//	level, queue                   seats, queues, virtual time
//	adjust                         who lends to whom
//	Dump, Metrics                  what is to be seen of it
package flowcontrol
