// Package bootstrap creates the objects that every cluster has, and maintains the objects that
// describe a running replica:
//
//	objects.go               namespaces, priority classes, the kubernetes service and its
//	                         ServiceCIDR, APIServices of built-in group versions
//	replicas.go              the identity lease of this replica, and the endpoints of the
//	                         kubernetes service
//	rbac*.go                 default roles and bindings, and aggregated roles
//	flowcontrol.go           default flow schemas and priority levels
//	dangling.go              the condition Dangling of flow schemas
//	authenticationconfig.go  the config map that extension servers read
//
// It writes through the internal client, so that its writes follow the same rules as the writes of
// other clients and need no network.
//
// Package build creates Bootstrap and the controllers RoleAggregator and DanglingController, and
// calls their Run, which returns when its context is canceled. Each hook of Bootstrap runs in its
// own goroutine and has a health check that fails until its first success. The hook for namespaces
// runs first.
package bootstrap
