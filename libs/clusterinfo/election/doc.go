// Package election lets one of a controller's replicas work at a time, by a
// Lease. Flags and their defaults are those of Kubernetes' own controllers.
//
// A replica waits (it has not seen the lease yet), stands by (another leads) or
// leads. One that loses the lease ends its work, waits for the end of it, and
// stands again; the process goes on. On shutdown the lease is given up only
// after the work has ended, so that no two replicas ever work at once and
// another one goes on at once.
//
// The services of the suite that are controllers call it.
package election
