package build

import (
	"fmt"

	"binnacle/libs/kubeclient"
	"binnacle/libs/serving"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/config"
)

// clientCertificates returns the client certificates of this server and the CAs that it trusts, for
// expiry metrics. Clients read the files on their own.
func clientCertificates(o *config.Options) ([]serving.Certificate, error) {
	var out []serving.Certificate
	for _, c := range []struct{ use, ca, cert, key, caFlag, certFlag string }{
		{"etcd", o.Etcd.CAFile, o.Etcd.CertFile, o.Etcd.KeyFile, "--etcd-cafile", "--etcd-certfile, --etcd-keyfile"},
		{"nats", o.Fanout.CAFile, o.Fanout.CertFile, o.Fanout.KeyFile, "--nats-ca-file", "--nats-cert-file, --nats-key-file"},
	} {
		if c.cert != "" {
			pair, err := tlsfiles.LoadPair(c.cert, c.key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.certFlag, err)
			}
			out = append(out, serving.Certificate{Use: c.use + "-client", Source: pair})
		}
		if c.ca != "" {
			bundle, err := tlsfiles.LoadBundle(c.ca)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.caFlag, err)
			}
			out = append(out, serving.Certificate{Use: c.use + "-ca", Source: bundle})
		}
	}
	for _, c := range []struct{ use, kubeconfig, flag string }{
		{"authentication-webhook", o.Authentication.Webhook.Kubeconfig, "--authentication-token-webhook-config-file"},
		{"authorization-webhook", o.Authorization.WebhookConfigFile, "--authorization-webhook-config-file"},
	} {
		if c.kubeconfig == "" {
			continue
		}
		certs, err := kubeclient.CertificatesOf(c.use, c.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.flag, err)
		}
		out = append(out, certs...)
	}
	return out, nil
}
