// Package allocator allocates cluster-wide unique values for services: addresses from the ranges of
// ServiceCIDR objects, and node ports.
//
// The IPAddress object of an address decides which service has it (KEP-1880). For a port, its bit
// in the range allocation at /registry/ranges/servicenodeports decides, in the format of
// Kubernetes. The addresses of the configured ranges are also recorded in such range allocations,
// unless the gate DisableAllocatorDualWrite is on, and only there if the gate
// MultiCIDRServiceAllocator is off: see addressBitmap. All of these are changed by the store's
// compare-and-swap, so any number of replicas of this server or of kube-apiserver can share a
// cluster. Caches only determine which values to try first.
//
// A write has three steps. Complete fills in values that follow from the object and the cluster's
// configuration. Allocate allocates missing values. The reservation that it returns is committed or
// rolled back once the result of the write is known. Repair finds values that a crash has leaked.
// It also reports, by Events, services that share an address or have one out of range.
//
// Package writes calls the allocator for every write to a service, bootstrap runs the repair.
package allocator
