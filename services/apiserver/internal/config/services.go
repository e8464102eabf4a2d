package config

import (
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Values of --endpoint-reconciler-type.
const (
	ReconcileLease = "lease"
	ReconcileNone  = "none"
)

// ServiceOptions configure the addresses and ports of services, and the kubernetes service.
type ServiceOptions struct {
	// ClusterIPRange is the value of the flag. Ranges is set by Complete.
	ClusterIPRange     string
	Ranges             []*net.IPNet
	NodePorts          utilnet.PortRange
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

func (o *ServiceOptions) addFlags(m *pflag.FlagSet) {
	m.StringVar(&o.ClusterIPRange, "service-cluster-ip-range", "10.0.0.0/24", "CIDR ranges of service cluster IPs, at most one per IP family.")
	m.Var(&o.NodePorts, "service-node-port-range", "Range of ports, both ends included, for services of type NodePort. It must not overlap with the ephemeral ports of nodes.")
	m.IntVar(&o.KubernetesNodePort, "kubernetes-service-node-port", 0, "If not 0, the kubernetes service has type NodePort and this port.")
	m.StringVar(&o.EndpointReconciler, "endpoint-reconciler-type", ReconcileLease, "Reconciler of the endpoints of the kubernetes service: lease (live replicas), none, or master-count (the same as lease).")
}

// complete parses the ranges.
func (o *ServiceOptions) complete() error {
	for _, r := range strings.Split(o.ClusterIPRange, ",") {
		_, n, err := net.ParseCIDR(strings.TrimSpace(r))
		if err != nil {
			return fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		o.Ranges = append(o.Ranges, n)
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
