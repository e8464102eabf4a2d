// Package flowcontrol implements API priority and fairness (KEP-1040; specification:
// flowcontrol.apiserver.k8s.io/v1).
//
// Flow schemas classify a request in the order of their precedence. The first match names a
// priority level, which has a number of seats. A running request takes as many seats as its Width
// says. If the level has no free seats, the request is rejected or waits in one of the level's
// queues. A flow is a schema and a user or namespace. Each flow is dealt a hand of queues, and a
// request joins the shortest of them. Queues are served fairly by virtual time: next comes the
// request that would end first if all queues were served in parallel with equal shares.
//
// The last eighth of a level's seats is reserved for flows without a running request, so that one
// flow with many requests does not delay others. Kubernetes has no such reserve.
//
// A level lends seats that it does not need. Every Period, Adjust sets all limits by the recent
// demand.
//
//	objects → Compiler → Config    compiled objects; only changed objects are compiled again
//	schemaIndex                    schemas by subject, so that a request is compared only with
//	                               schemas about its user
//	Controller                     the current levels; Acquire admits a request
//	level, queue                   seats, queues, virtual time
//	Adjust                         lending and borrowing between levels
//	Dump, Metrics                  debug output and metrics
package flowcontrol
