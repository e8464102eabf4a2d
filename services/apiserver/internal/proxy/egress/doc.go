// Package egress connects the API server to other networks according to an
// EgressSelectorConfiguration (Kubernetes: --egress-selector-config-file): to the control plane, to
// etcd and to the cluster. A connection is direct or goes through a proxy that speaks HTTP CONNECT
// or the gRPC of konnectivity.
//
// It owns the format and the validation of the file, the connections to proxies and the
// apiserver_egress_dialer_* metrics. A network that the file does not name, or names as Direct, has
// no Dial, and connections to it work as without this package. app passes the Dials to the packages
// that connect.
package egress
