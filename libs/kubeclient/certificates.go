package kubeclient

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"binnacle/libs/serving/tlsfiles"
)

// Certificates returns the client certificate and the trusted CAs of a configuration, as far as it
// has any. client-go reads a client certificate file again every few minutes, and reopens its
// connections if it has changed.
func Certificates(use string, config *rest.Config) ([]tlsfiles.Certificate, error) {
	var out []tlsfiles.Certificate
	tlsClientConfig := &config.TLSClientConfig
	var pair *tlsfiles.Pair
	var err error
	switch {
	case len(tlsClientConfig.CertData) > 0:
		pair, err = tlsfiles.FixedPair(tlsClientConfig.CertData, tlsClientConfig.KeyData)
	case tlsClientConfig.CertFile != "":
		pair, err = tlsfiles.LoadPair(tlsClientConfig.CertFile, tlsClientConfig.KeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	if pair != nil {
		out = append(out, tlsfiles.Certificate{Use: use, Source: pair})
	}
	if tlsClientConfig.CAFile != "" && len(tlsClientConfig.CAData) == 0 {
		b, err := tlsfiles.LoadBundle(tlsClientConfig.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		out = append(out, tlsfiles.Certificate{Use: use + "-ca", Source: b})
	}
	return out, nil
}

// CertificatesOf returns the Certificates of a kubeconfig file.
func CertificatesOf(use, kubeconfig string) ([]tlsfiles.Certificate, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("client configuration: %w", err)
	}
	return Certificates(use, config)
}
