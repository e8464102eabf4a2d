// Package overload protects the server from too many and too large requests. Package server puts
// its filters into the chain.
//
//	Filters      flow control or the limit of requests in flight, bodies, long URLs
//	seatHolder   the seats of flow control that a request holds, and releases while it waits
//	work         the memory and the CPU permit of a large request; implements request.Work
//	bodyBudget   the memory of the bodies of one priority level
//	client       the share of a principal, and the reserve for nodes and the suite's services
//
// cost.go estimates which requests are large.
package overload
