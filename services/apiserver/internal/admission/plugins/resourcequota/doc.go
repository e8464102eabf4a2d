// Package resourcequota charges created and growing objects to the quotas of their namespace
// (specification: ResourceQuota).
//
// The charge is a claim. It is made after validation, right before the write, and dropped if the
// write fails or is retried. It is recorded in the status of the quota by compare-and-swap. So
// replicas agree, and a limit holds even if a process is killed at any time. A charge for a write
// with an unknown outcome stays until the quota controller counts the objects again.
//
//	Claim ─► evaluate: which quotas apply to the object, and by how much (evaluator)
//	      ─► batcher of the namespace: waiting requests are charged together
//	      ─► Quotas.Change: the quota as it is in the store, limits, new usage
//	Drop  ─► the same batcher, to undo the charge
//
// A quota applies once its status contains limits and usage, which the controller writes. The
// controller also releases the usage of deleted objects.
package resourcequota
