// Package resourcequota charges what is created, and what grows, to the quotas of
// its namespace (specification: ResourceQuota).
//
// The charge is a claim: it is taken after validation, right before the write, and
// given back when the write fails or is tried again. It stands in the status of the
// quota, which is changed by compare-and-swap; so replicas agree, and a limit holds
// whoever is killed when. What was charged for a write that nobody knows the
// outcome of stays charged, until the controller that counts the objects finds out.
//
//	Claim ─► judge: which quotas concern the object, and by how much (evaluator)
//	      ─► lane of the namespace: requests that wait are charged together
//	      ─► Quotas.Change: the quota as it is in the store, limits, new usage
//	Drop  ─► the same lane, backwards
//
// A quota counts from when its status says what is limited and what is used, which
// is the controller's work; so is giving back what deleted objects used.
package resourcequota
