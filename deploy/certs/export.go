package certs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// filePaths returns the paths of all files of a program's folder.
func (p programFolder) filePaths(layout Layout) []string {
	var out []string
	for _, a := range p.trusts {
		out = append(out, layout.TrustBundle(p.name, a))
	}
	for _, s := range p.certs {
		out = append(out, s.pair.Cert, s.pair.Key)
	}
	switch p.name {
	case apiserverFolder:
		out = append(out, layout.ServiceAccountKey())
	case tokenReviewer:
		out = append(out, layout.ServiceAccountPublicKey())
	}
	return out
}

// Secrets returns one Secret in YAML for the folder of each program of
// deploy/manifests. No Secret holds the key of a CA.
func Secrets(options Options) ([]byte, error) {
	var out bytes.Buffer
	for _, program := range options.programs() {
		if !program.deployed {
			continue
		}
		secret := corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: program.name + "-certs"},
			Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{},
		}
		for _, f := range program.filePaths(Layout{options.Dir}) {
			data, err := os.ReadFile(f)
			if err != nil {
				return nil, fmt.Errorf("secret of %s: %w", program.name, err)
			}
			secret.Data[filepath.Base(f)] = data
		}
		data, err := yaml.Marshal(&secret)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), nil
}

// AdminUser is the user name of the administrator.
const AdminUser = "binnacle-admin"

// Kubeconfig returns a kubeconfig for a server. It names the CA certificates in the file ca and the
// files of the client certificate.
func Kubeconfig(server, user, ca string, client Pair) *clientcmdapi.Config {
	const cluster = "binnacle"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: client.Cert, ClientKey: client.Key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	return config
}

// AdminKubeconfig returns the kubeconfig of the administrator for a server.
func (l Layout) AdminKubeconfig(server string) *clientcmdapi.Config {
	return Kubeconfig(server, AdminUser, l.AdminTrust(), l.Admin())
}
