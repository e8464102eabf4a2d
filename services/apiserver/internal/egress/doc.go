// Package egress leads connections of the API server into other networks, as an
// EgressSelectorConfiguration says (Kubernetes: --egress-selector-config-file): to the
// control plane, to etcd, to the cluster; straight there, or through a proxy that
// speaks HTTP CONNECT or the gRPC of konnectivity.
//
// It owns the file's form and its rules, the connections to proxies and the
// apiserver_egress_dialer_* metrics. A network that the file does not name, or names as
// Direct, has no Dial: who connects there does what it did without this package. app
// hands the Dials to the rooms that connect.
package egress
