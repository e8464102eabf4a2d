// Package kubeclient is how the small services reach the API server: flags, a
// client configuration made from them, and a Probe that follows whether the
// API server can be reached.
//
// A service without --kubeconfig and --master runs in a pod and uses what the
// pod is given. Watches may last, so the configuration sets no timeout for
// whole requests; callers bound theirs by contexts.
package kubeclient
