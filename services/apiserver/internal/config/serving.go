package config

import (
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/storage/fanout"
)

// WarnInsecure logs a warning that lists why the server is insecure or unusable, and which flags to
// set. The default flags cause such a warning: they are the defaults of kube-apiserver, which are
// not meant to be used unchanged.
func (o *Options) WarnInsecure(log *slog.Logger) {
	var problems []string
	if o.Authorization.allowsEverything() {
		problems = append(problems, "every authenticated client may do everything: set --authorization-mode=Node,RBAC")
		if ip := o.Serving.BindAddress; ip == nil || ip.IsUnspecified() {
			problems = append(problems, "it listens on all interfaces: set --bind-address")
		}
	}
	if !o.authenticatesClients() {
		problems = append(problems,
			"no client can authenticate: set --client-ca-file, --token-auth-file, --authentication-token-webhook-config-file or --authentication-config")
	}
	if len(problems) > 0 {
		log.Warn("this server is not configured for use", "problems", strings.Join(problems, "; "))
	}
}

// authenticatesClients reports whether any authentication method for clients is configured.
func (o *Options) authenticatesClients() bool {
	a := &o.Authentication
	return o.Serving.ClientCAFile != "" || a.TokenFile != "" ||
		a.BootstrapTokens || a.Webhook.Kubeconfig != "" || a.Proxy.CAFile != "" ||
		a.ServiceAccountSigner != "" || a.ServiceAccountSigningEndpoint != "" || a.JWT.File != "" || a.JWT.OIDC.IsSet()
}

// Hostname returns the name of this machine.
func (o *Options) Hostname() (string, error) {
	if o.Host != "" {
		return o.Host, nil
	}
	return os.Hostname()
}

// PrimaryFamily returns the IP family of the first service range, or IPv4 before Complete.
func (o *Options) PrimaryFamily() corev1.IPFamily {
	if len(o.Services.Ranges) > 0 && o.Services.Ranges[0].IP.To4() == nil {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// serviceAddress returns the first address of a range, which is the cluster IP of the kubernetes
// service.
func serviceAddress(serviceRange *net.IPNet) string {
	ip := slices.Clone(serviceRange.IP)
	ip[len(ip)-1]++
	return ip.String()
}

// defaultAdvertiseAddress returns the address at which members of the cluster reach the server: the
// bind address if it is reachable, otherwise an address of this host.
func defaultAdvertiseAddress(bind net.IP) net.IP {
	if bind != nil && !bind.IsUnspecified() && !bind.IsLoopback() {
		return bind
	}
	// Dial sends no packet for UDP. The kernel only selects the interface of the default route.
	if connection, err := net.Dial("udp", "192.0.2.1:9"); err == nil {
		defer connection.Close()
		if address, ok := connection.LocalAddr().(*net.UDPAddr); ok && address.IP.IsGlobalUnicast() {
			return address.IP
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err == nil {
		for _, address := range addresses {
			if n, ok := address.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				return n.IP
			}
		}
	}
	return net.IPv4(127, 0, 0, 1) // the host has no network
}

// addFanoutFlags binds the flags of the section fan-out.
func addFanoutFlags(flagSet *pflag.FlagSet, options *fanout.Options) {
	flagSet.StringSliceVar(&options.Servers, "nats-servers", options.Servers,
		"Comma-separated URLs of the NATS servers that distribute changes to replicas: nats://HOST:PORT or tls://HOST:PORT. If empty, the server is the only replica.")
	flagSet.StringVar(&options.CAFile, "nats-ca-file", options.CAFile, "CA bundle that verifies the NATS servers.")
	flagSet.StringVar(&options.CertFile, "nats-cert-file", options.CertFile, "Client certificate for the NATS servers.")
	flagSet.StringVar(&options.KeyFile, "nats-key-file", options.KeyFile, "Private key of --nats-cert-file.")
	flagSet.StringVar(&options.CredentialsFile, "nats-credentials-file",
		options.CredentialsFile, "Credentials file of the NATS user of the replicas.")
	flagSet.StringVar(&options.ClusterID, "cluster-id", options.ClusterID,
		"Name of the cluster: the same for all its replicas, and unique among the clusters that use the same NATS servers.")
}

func addKubeletFlags(flagSet *pflag.FlagSet, options *kubeletproxy.Options) {
	flagSet.StringVar(&options.CertFile, "kubelet-client-certificate", "", "Client certificate for connections to kubelets.")
	flagSet.StringVar(&options.KeyFile, "kubelet-client-key", "", "Key of the client certificate for kubelets.")
	flagSet.StringVar(&options.CAFile, "kubelet-certificate-authority", "", "CA bundle that verifies kubelets. If empty, they are not verified.")
	flagSet.DurationVar(&options.Timeout, "kubelet-timeout", options.Timeout, "Timeout for connecting to kubelets.")
	flagSet.IntVar(&options.Port, "kubelet-port", options.Port, "Deprecated: the port of kubelets whose node has no port in its status.")
	_ = flagSet.MarkDeprecated("kubelet-port", "nodes say the port of their kubelet")
	flagSet.Int64Var(&options.MaxBytesPerSecond, "max-connection-bytes-per-sec", 0,
		"Maximum number of bytes per second in each direction of an upgraded connection; 0 for no limit.")
	flagSet.StringSliceVar(&options.AddressTypes, "kubelet-preferred-address-types", options.AddressTypes,
		"List of node address types for connections to kubelets, in order of preference.")
}

// DebugOptions configure the facilities for debugging the server.
type DebugOptions struct {
	Profiling           bool   // serve /debug/pprof/
	ContentionProfiling bool   // record block and mutex profiles
	Socket              string // Unix socket that serves profiles; empty for none
	LogFiles            bool   // serve /logs
}

func (o *DebugOptions) addFlags(generic, misc *pflag.FlagSet) {
	generic.BoolVar(&o.Profiling, "profiling", true, "Serve profiles at /debug/pprof/.")
	generic.BoolVar(&o.ContentionProfiling, "contention-profiling", false, "Enable block profiling, if --profiling is enabled.")
	generic.StringVar(&o.Socket, "debug-socket-path", "",
		"Unix socket that serves profiles without authentication. Only the user of the server can connect to it.")
	misc.BoolVar(&o.LogFiles, "enable-logs-handler", false, "Serve the files of /var/log at /logs/.")
}
