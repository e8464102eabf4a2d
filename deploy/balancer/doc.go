// Command balancer distributes connections over the instances of services, for deploy/compose:
// connections to each address go to an instance whose /readyz returns 200. It forwards bytes and
// does not terminate TLS, so it needs no key. Readiness checks verify the certificates of
// instances.
//
//	balancer --ca-file=serving-ca.crt --balance=:6443=apiserver-1:6443,apiserver-2:6443
//
// The command check checks once whether instances are ready, prints those that are not, and then
// exits with 1. The image contains no other program that could do this.
//
//	balancer check --ca-file=serving-ca.crt apiserver-1:6443 apiserver-2:6443
package main
