// Package kubelettest is a kubelet for tests: it speaks the protocols in which the API
// server asks kubelets for logs, commands and forwarded ports (KEP-4006), and leaves
// what a container does to whoever starts it. The tests of package upstream run it in
// their process; cmd/kubelet is a program of it, whose containers are processes.
package kubelettest
