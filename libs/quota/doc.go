// Package quota computes the usage of objects under quotas (specification: ResourceQuota): which
// names of quotas apply to a resource, which scopes an object is in, and how much of each name it
// uses.
//
// Admission in the API server charges the usage of a request, and the quota controller adds the
// usage of all objects. Both call this package, so they agree. It has no state.
package quota
