// Package shim starts the binnacle API server in place of an in-process kube-apiserver, for the
// integration tests of k8s.io/kubernetes.
//
// A test configures its server with options of kube-apiserver. The shim translates those with other
// values than the default into flags. Hooks that need the process of the server have no flags. A
// test that uses one fails with ErrHook.
//
// The files below mirror/testdata call the package. Command integration compiles them into the
// tests.
package shim
