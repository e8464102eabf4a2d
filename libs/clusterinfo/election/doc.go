// Package election lets one replica of a controller work at a time, by a Lease. Flags and their
// defaults are those of Kubernetes' controllers.
//
// A replica waits (it has not seen the lease yet), stands by (another one leads) or leads. A
// replica that loses the lease ends its work, waits for the end, and becomes a candidate again; the
// process continues. On shutdown it releases the lease only after the work has ended. So two
// replicas never work at once, and another one takes over immediately.
//
// The controllers among the suite's services call it.
package election
