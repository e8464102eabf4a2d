package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/libs/features"
)

// AggregationOptions configure requests to extension servers and to other API servers.
type AggregationOptions struct {
	// Routing connects to the endpoints of services instead of their cluster IPs.
	Routing bool
	// ProxyClient is the client certificate for extension servers and peers.
	ProxyClient struct{ CertFile, KeyFile string }
	// RejectRedirects rejects redirects of extension servers instead of forwarding them.
	RejectRedirects bool
	Peers           PeerOptions
}

func (o *AggregationOptions) addFlags(flagSet *pflag.FlagSet) {
	flagSet.BoolVar(&o.Routing, "enable-aggregator-routing", false,
		"Route requests for webhooks and extension servers to the endpoints of their services instead of the cluster IP.")
	flagSet.BoolVar(&o.RejectRedirects, "aggregator-reject-forwarding-redirect", true,
		"Reject redirects of extension servers instead of forwarding them to clients.")
	flagSet.StringVar(&o.ProxyClient.CertFile, "proxy-client-cert-file", "",
		"Client certificate for requests to extension servers and peers, which then trust the user headers. Its CA is that of --requestheader-client-ca-file. Reloaded when it changes.")
	flagSet.StringVar(&o.ProxyClient.KeyFile, "proxy-client-key-file", "", "Private key of --proxy-client-cert-file.")
	o.Peers.addFlags(flagSet)
}

// PeerOptions configure requests to other API servers of the cluster (peers).
type PeerOptions struct {
	CAFile string // verifies peers
	// AdvertiseIP and AdvertisePort are where peers reach this server; empty means the defaults.
	AdvertiseIP, AdvertisePort string
}

func (o *PeerOptions) addFlags(flagSet *pflag.FlagSet) {
	const gate = " Needs the feature gate UnknownVersionInteroperabilityProxy."
	flagSet.StringVar(&o.CAFile, "peer-ca-file", "",
		"CA bundle that verifies the other API servers to which requests for resources that this server does not serve are proxied. If empty, requests are not proxied. The file is reloaded when it changes."+
			gate)
	flagSet.StringVar(&o.AdvertiseIP, "peer-advertise-ip", "",
		"Address at which other API servers reach this one. Defaults to --advertise-address."+gate)
	flagSet.StringVar(&o.AdvertisePort, "peer-advertise-port", "",
		"Port at which other API servers reach this one. Defaults to --secure-port."+gate)
}

func (o *Options) validatePeers() (errs []error) {
	const gate = features.UnknownVersionInteroperabilityProxy
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	peerOptions := &o.Aggregation.Peers
	if !o.Features.Enabled(gate) {
		for _, flag := range []struct{ name, value string }{
			{name: "peer-ca-file", value: peerOptions.CAFile},
			{name: "peer-advertise-ip", value: peerOptions.AdvertiseIP},
			{name: "peer-advertise-port", value: peerOptions.AdvertisePort},
		} {
			if flag.value != "" {
				bad("--%s requires %s feature to be turned on", flag.name, gate)
			}
		}
		return errs
	}
	if peerOptions.CAFile != "" && (o.Aggregation.ProxyClient.CertFile == "" || o.Aggregation.ProxyClient.KeyFile == "") {
		errs = append(errs,
			errors.New("--peer-ca-file needs --proxy-client-cert-file and --proxy-client-key-file, with which this server authenticates to other API servers"))
	}
	if peerOptions.AdvertiseIP != "" {
		if ip := net.ParseIP(peerOptions.AdvertiseIP); ip == nil || ip.IsUnspecified() || ip.IsMulticast() {
			bad("--peer-advertise-ip %q is not an address at which a server can be reached", peerOptions.AdvertiseIP)
		}
	}
	if peerOptions.AdvertisePort != "" {
		if n, err := strconv.ParseUint(peerOptions.AdvertisePort, 10, 16); err != nil || n == 0 {
			bad("--peer-advertise-port %q is not a port", peerOptions.AdvertisePort)
		}
	}
	return errs
}

// Values of --endpoint-reconciler-type.
const (
	ReconcileLease = "lease"
	ReconcileNone  = "none"
)

// ServiceOptions configure the addresses and ports of services, and the kubernetes service.
type ServiceOptions struct {
	// ClusterIPRange is the value of the flag, and Ranges its parsed form, which Complete sets.
	ClusterIPRange string
	Ranges         []*net.IPNet
	NodePorts      utilnet.PortRange
	// KubernetesNodePort is the node port of the kubernetes service; 0 for none.
	KubernetesNodePort int
	// EndpointReconciler selects how the endpoints of the kubernetes service are maintained.
	EndpointReconciler string
}

func newServiceOptions() ServiceOptions {
	return ServiceOptions{
		NodePorts:          utilnet.PortRange{Base: 30000, Size: 2768}, // below the ephemeral ports of common systems
		EndpointReconciler: ReconcileLease,
	}
}

func (o *ServiceOptions) addFlags(flagSet *pflag.FlagSet) {
	flagSet.StringVar(&o.ClusterIPRange, "service-cluster-ip-range", "10.0.0.0/24",
		"CIDR ranges of service cluster IPs, at most one per IP family.")
	flagSet.Var(&o.NodePorts, "service-node-port-range",
		"Range of ports, both ends included, for services of type NodePort. It must not overlap with the ephemeral ports of nodes.")
	flagSet.IntVar(&o.KubernetesNodePort, "kubernetes-service-node-port",
		0, "If not 0, the kubernetes service has type NodePort and this port.")
	flagSet.StringVar(&o.EndpointReconciler, "endpoint-reconciler-type", ReconcileLease,
		"Reconciler of the endpoints of the kubernetes service: lease (live replicas), none, or master-count (the same as lease).")
}

func (o *ServiceOptions) complete() error {
	for _, text := range strings.Split(o.ClusterIPRange, ",") {
		_, serviceRange, err := net.ParseCIDR(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		o.Ranges = append(o.Ranges, serviceRange)
	}
	return nil
}

func (o *ServiceOptions) validate() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Ranges) > 2 || len(o.Ranges) == 2 && (o.Ranges[0].IP.To4() == nil) == (o.Ranges[1].IP.To4() == nil) {
		bad("--service-cluster-ip-range %q: at most one range of each family", o.ClusterIPRange)
	}
	for _, r := range o.Ranges {
		if ones, bits := r.Mask.Size(); bits-ones > 64 || bits-ones < 3 {
			bad("--service-cluster-ip-range %q: a range must have at least 8 addresses, and a prefix of at least 64 bits for IPv6", r)
		}
	}
	if o.KubernetesNodePort != 0 && !o.NodePorts.Contains(o.KubernetesNodePort) {
		bad("--kubernetes-service-node-port %d is not within --service-node-port-range %s", o.KubernetesNodePort, o.NodePorts.String())
	}
	if o.NodePorts.Size < 1 {
		bad("--service-node-port-range is empty")
	}
	return errs
}
