// Package bootstrap makes the objects that a cluster has from the start, and
// keeps those that belong to a running replica: the namespaces, the kubernetes
// service and its endpoints, priority classes, flow schemas and priority
// levels, the configuration that extension
// servers read, API services of built-in group versions and of those of custom
// resources, and this replica's identity lease. It writes through the endpoints' own way of a write, by a
// loopback client that needs no network.
package bootstrap
