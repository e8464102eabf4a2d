package suite

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/deploy/certs"
)

// writeKubeconfigs writes one kubeconfig for the admin, one for each service that
// is a client of the API server, and one for each that the API server asks.
func writeKubeconfigs(p paths, port int, services []service) error {
	l, server := p.certs(), localURL(port)
	if err := writeKubeconfig(p.adminKubeconfig(), server, "binnacle-admin", l.CA(), l.Admin()); err != nil {
		return err
	}
	for _, name := range certs.Services() {
		if err := writeKubeconfig(p.kubeconfig(name), server, name, l.CA(), l.Client(name)); err != nil {
			return err
		}
	}
	for _, s := range services {
		if s.name != authnWebhook {
			continue
		}
		if err := writeKubeconfig(p.webhookKubeconfig(s.name), localURL(port+s.offset), apiserver, l.CA(), l.WebhookClient()); err != nil {
			return err
		}
	}
	return nil
}

func localURL(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

func writeKubeconfig(path, server, user string, ca, client certs.Pair) error {
	const cluster = "binnacle"
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca.Cert}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: client.Cert, ClientKey: client.Key}
	c.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	c.CurrentContext = cluster
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
