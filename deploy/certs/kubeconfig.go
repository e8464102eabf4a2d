package certs

import clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

// AdminUser is the user name of the administrator.
const AdminUser = "binnacle-admin"

// Kubeconfig returns a kubeconfig for a server. It names the CA certificates in the file ca and the
// files of the client certificate.
func Kubeconfig(server, user, ca string, client Pair) *clientcmdapi.Config {
	const cluster = "binnacle"
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: client.Cert, ClientKey: client.Key}
	c.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	c.CurrentContext = cluster
	return c
}

// AdminKubeconfig returns the kubeconfig of the administrator for a server.
func (l Layout) AdminKubeconfig(server string) *clientcmdapi.Config {
	return Kubeconfig(server, AdminUser, l.AdminTrust(), l.Admin())
}
