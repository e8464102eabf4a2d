// Package kubeclient connects the small services to the API server: flags, a client configuration,
// and a Probe that tracks whether the API server is reachable. The configuration bounds the size of
// responses, and EachPage lists what exceeds the bound in smaller pages.
//
// A service without --kubeconfig and --master runs in a pod and uses the credentials of the pod.
// Watches are long-lived, so the configuration sets no timeout for whole requests; callers use
// contexts.
package kubeclient
