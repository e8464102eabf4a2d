// Package bootstrap creates the objects that every cluster has, and maintains those of a running
// replica: the namespaces, the kubernetes service and its endpoints, the default ServiceCIDR,
// default roles and bindings, priority classes, flow schemas and priority levels, the configuration
// that extension servers read, the first API services (package autoregister maintains them), and
// this replica's identity lease. It writes through a loopback client, so that its
// writes follow the same rules as those of other clients and need no network.
//
// Package build creates Bootstrap and the controllers RoleAggregator and DanglingController,
// and calls their Run, which returns when its context ends. Each part of Bootstrap runs in its own
// goroutine, the namespaces first, and has a health check that fails until its first success.
package bootstrap
