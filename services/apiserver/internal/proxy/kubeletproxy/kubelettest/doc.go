// Package kubelettest is a kubelet for tests. It speaks the protocols by which the API server
// requests logs, commands and forwarded ports from kubelets (KEP-4006). Functions of the caller
// implement the containers. The tests of package kubeletproxy run it in process. cmd/kubelet is a
// program whose containers are processes.
package kubelettest
