// Package allocator gives services what is unique in a cluster: addresses from
// the ranges of ServiceCIDR objects, and node ports.
//
// An address belongs to whoever created the IPAddress object of that name
// (KEP-1880), a port to whoever set its bit in the range allocation at
// /registry/ranges/servicenodeports, in the form that Kubernetes keeps there.
// The addresses of the configured ranges are kept in that form, too, unless the gate
// DisableAllocatorDualWrite is on, and in that form alone if the gate
// MultiCIDRServiceAllocator is off: see addressBits.
// All are decided by the store's compare-and-swap, so any number of replicas,
// ours or stock ones, can share a cluster; caches only say where to try first.
//
// A write goes through three steps: Complete fills in what follows from the
// object and the cluster's configuration, Allocate takes what is missing, and
// the Claim it returns is settled once the fate of the object is known. What a
// crash leaves behind is found by Repair, which also tells of services that
// share an address or have one out of range, by Events.
//
// The endpoints call it for every write to a service, bootstrap runs the repair.
package allocator
