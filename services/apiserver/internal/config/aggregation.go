package config

import "github.com/spf13/pflag"

// AggregationOptions configure requests to extension servers and to other API servers.
type AggregationOptions struct {
	// Routing connects to the endpoints of services instead of their cluster IPs.
	Routing bool
	// ProxyClient is the client certificate for extension servers and peers. RejectRedirects
	// rejects redirects of extension servers.
	ProxyClient     struct{ CertFile, KeyFile string }
	RejectRedirects bool
	Peers           PeerOptions
}

func (o *AggregationOptions) addFlags(m *pflag.FlagSet) {
	m.BoolVar(&o.Routing, "enable-aggregator-routing", false, "Route requests for webhooks and extension servers to the endpoints of their services instead of the cluster IP.")
	m.BoolVar(&o.RejectRedirects, "aggregator-reject-forwarding-redirect", true, "Reject redirects of extension servers instead of forwarding them to clients.")
	m.StringVar(&o.ProxyClient.CertFile, "proxy-client-cert-file", "", "Client certificate for requests to extension servers and peers, which then trust the user headers. Its CA is that of --requestheader-client-ca-file. Reloaded when it changes.")
	m.StringVar(&o.ProxyClient.KeyFile, "proxy-client-key-file", "", "Private key of --proxy-client-cert-file.")
	o.Peers.addFlags(m)
}
