// Package shim starts the binnacle API server in place of an in-process kube-apiserver, for the
// integration tests of k8s.io/kubernetes.
//
// A test configures its server by options of kube-apiserver. The shim translates them into flags:
// a flag is passed if its value differs from the default. Hooks that only work in the process of
// the server cannot be passed. A test that needs one fails with ErrHook.
//
// The files below mirror/testdata call the package. Command integration compiles them into the
// tests.
package shim
