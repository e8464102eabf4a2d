// Package quotas computes the status of resource quotas: the limits in effect, and the usage of all
// objects of the namespace (specification: ResourceQuota).
//
// A quota is due when it is new or its specification changes, periodically, and when an object that
// it may count is deleted or releases usage. Quotas without a status come first, because API
// servers reject requests until a quota has one. Numbers of objects come from the graph. Usage that
// depends on the content of objects (pods, services, volume and device claims) is read from the API
// server in pages, so no object stays in memory.
//
// API servers charge new objects to quotas themselves. This controller corrects their sums.
//
// Package app runs a Controller on the leader.
package quotas
