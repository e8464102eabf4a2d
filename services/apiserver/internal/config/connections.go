package config

import (
	"github.com/spf13/pflag"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/storage/fanout"
)

// addFanoutFlags binds the flags of the section fan-out.
func addFanoutFlags(fs *pflag.FlagSet, o *fanout.Options) {
	fs.StringSliceVar(&o.Servers, "nats-servers", o.Servers, "Addresses of the NATS servers (nats://host:port or tls://host:port, comma separated) that carry changes between replicas. If empty, an embedded server inside the process is used, which suits a single replica.")
	fs.StringVar(&o.CAFile, "nats-ca-file", o.CAFile, "File with the certificate authorities that verify the NATS servers.")
	fs.StringVar(&o.CertFile, "nats-cert-file", o.CertFile, "File with the client certificate for the NATS servers.")
	fs.StringVar(&o.KeyFile, "nats-key-file", o.KeyFile, "File with the private key of --nats-cert-file.")
	fs.StringVar(&o.CredentialsFile, "nats-credentials-file", o.CredentialsFile, "NATS credentials file of the replicas' user.")
	fs.StringVar(&o.ClusterID, "cluster-id", o.ClusterID, "Name that all replicas of this cluster share, and no other cluster on the same NATS servers has.")
}

// addKubeletFlags binds the flags of connections to kubelets.
func addKubeletFlags(f *pflag.FlagSet, o *kubeletproxy.Options) {
	f.StringVar(&o.CertFile, "kubelet-client-certificate", "", "Client certificate for connections to kubelets.")
	f.StringVar(&o.KeyFile, "kubelet-client-key", "", "Key of the client certificate for kubelets.")
	f.StringVar(&o.CAFile, "kubelet-certificate-authority", "", "CA bundle that verifies kubelets. If empty, they are not verified.")
	f.DurationVar(&o.Timeout, "kubelet-timeout", o.Timeout, "How long opening a connection to a kubelet may take.")
	f.IntVar(&o.Port, "kubelet-port", o.Port, "The port of kubelets whose node does not say its own.")
	_ = f.MarkDeprecated("kubelet-port", "nodes say the port of their kubelet")
	f.Int64Var(&o.MaxBytesPerSecond, "max-connection-bytes-per-sec", 0, "The number of bytes per second that an upgraded connection of a client may carry in each direction; 0 for no limit.")
	f.StringSliceVar(&o.AddressTypes, "kubelet-preferred-address-types", o.AddressTypes, "The types of a node's addresses to reach its kubelet at, the preferred one first.")
}
