// Package resourcequota charges created and growing objects to the quotas of their namespace
// (specification: ResourceQuota).
//
// The plugin charges an object after validation, right before the write, and refunds the charge if
// the write fails or is retried. It writes the new usage to the status of the quota by
// compare-and-swap, so that replicas agree and a limit holds even if a process is killed at any time.
// If the outcome of a write is unknown, the charge stays until the quota controller counts the
// objects again.
//
//	Reserve  ─► evaluate: finds the quotas to charge, in the cache
//	         ─► batcher of the namespace: charges waiting requests together
//	         ─► Quotas.Change: checks the limits and writes the usage, in the store
//	Rollback ─► the same batcher, which refunds the charge
//
// A quota applies once its status contains limits and usage, which the quota controller writes. The
// controller also releases the usage of deleted objects.
package resourcequota
