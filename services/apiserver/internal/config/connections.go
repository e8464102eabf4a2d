package config

import (
	"github.com/spf13/pflag"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/storage/fanout"
)

// addFanoutFlags binds the flags of the section fan-out.
func addFanoutFlags(fs *pflag.FlagSet, o *fanout.Options) {
	fs.StringSliceVar(&o.Servers, "nats-servers", o.Servers, "Comma-separated URLs of the NATS servers that distribute changes to replicas: nats://HOST:PORT or tls://HOST:PORT. If empty, the server embeds NATS, for a single replica.")
	fs.StringVar(&o.CAFile, "nats-ca-file", o.CAFile, "CA bundle that verifies the NATS servers.")
	fs.StringVar(&o.CertFile, "nats-cert-file", o.CertFile, "Client certificate for the NATS servers.")
	fs.StringVar(&o.KeyFile, "nats-key-file", o.KeyFile, "Private key of --nats-cert-file.")
	fs.StringVar(&o.CredentialsFile, "nats-credentials-file", o.CredentialsFile, "Credentials file of the NATS user of the replicas.")
	fs.StringVar(&o.ClusterID, "cluster-id", o.ClusterID, "Name of the cluster: the same for all its replicas, and unique among the clusters that use the same NATS servers.")
}

// addKubeletFlags binds the flags of connections to kubelets.
func addKubeletFlags(f *pflag.FlagSet, o *kubeletproxy.Options) {
	f.StringVar(&o.CertFile, "kubelet-client-certificate", "", "Client certificate for connections to kubelets.")
	f.StringVar(&o.KeyFile, "kubelet-client-key", "", "Key of the client certificate for kubelets.")
	f.StringVar(&o.CAFile, "kubelet-certificate-authority", "", "CA bundle that verifies kubelets. If empty, they are not verified.")
	f.DurationVar(&o.Timeout, "kubelet-timeout", o.Timeout, "Timeout for connecting to kubelets.")
	f.IntVar(&o.Port, "kubelet-port", o.Port, "Deprecated: the port of kubelets whose node has no port in its status.")
	_ = f.MarkDeprecated("kubelet-port", "nodes say the port of their kubelet")
	f.Int64Var(&o.MaxBytesPerSecond, "max-connection-bytes-per-sec", 0, "Maximum number of bytes per second in each direction of an upgraded connection; 0 for no limit.")
	f.StringSliceVar(&o.AddressTypes, "kubelet-preferred-address-types", o.AddressTypes, "List of node address types for connections to kubelets, in order of preference.")
}
