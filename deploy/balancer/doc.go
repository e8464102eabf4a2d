// Command balancer spreads connections over the instances of services, for
// deploy/compose: those to each address go to an instance whose /readyz answers 200.
// It passes bytes on and ends no TLS, so it holds no key; instances are known by
// their certificates when they are asked.
//
//	balancer --ca-file=serving-ca.crt --balance=:6443=apiserver-1:6443,apiserver-2:6443
//
// The command check asks once whether others are ready, says who is not, and ends
// with 1 then: an image has nothing else that could ask.
//
//	balancer check --ca-file=serving-ca.crt apiserver-1:6443 apiserver-2:6443
package main
