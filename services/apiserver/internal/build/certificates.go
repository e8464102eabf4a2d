package build

import (
	"fmt"

	"binnacle/libs/kubeclient"
	"binnacle/libs/serving"
	"binnacle/libs/serving/tlsfiles"
)

// clientCertificates are those that this server shows to others, and the CAs by
// which it knows them. Whoever connects reads the files by itself; here they are
// loaded so that their ends are known.
func (o *Options) clientCertificates() ([]serving.Certificate, error) {
	var out []serving.Certificate
	for _, c := range []struct{ use, ca, cert, key string }{
		{"etcd", o.Etcd.CAFile, o.Etcd.CertFile, o.Etcd.KeyFile},
		{"nats", o.Fanout.CAFile, o.Fanout.CertFile, o.Fanout.KeyFile},
	} {
		if c.cert != "" {
			pair, err := tlsfiles.LoadPair(c.cert, c.key)
			if err != nil {
				return nil, fmt.Errorf("client certificate for %s: %w", c.use, err)
			}
			out = append(out, serving.Certificate{Use: c.use + "-client", Source: pair})
		}
		if c.ca != "" {
			bundle, err := tlsfiles.LoadBundle(c.ca)
			if err != nil {
				return nil, fmt.Errorf("certificate authorities of %s: %w", c.use, err)
			}
			out = append(out, serving.Certificate{Use: c.use + "-ca", Source: bundle})
		}
	}
	for _, c := range []struct{ use, kubeconfig string }{
		{"authentication-webhook", o.Authentication.Webhook.Kubeconfig},
		{"authorization-webhook", o.Authorization.WebhookConfigFile},
	} {
		if c.kubeconfig == "" {
			continue
		}
		certs, err := kubeclient.CertificatesOf(c.use, c.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.use, err)
		}
		out = append(out, certs...)
	}
	return out, nil
}
