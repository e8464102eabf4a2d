package webhooks

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	admissionconfig "binnacle/services/apiserver/internal/admission/configuration"
)

// userAgent is the User-Agent that webhooks see.
const userAgent = "kube-apiserver-admission"

// Credentials are the credentials that the server presents to webhooks. They are the users of a
// kubeconfig, whose names are host patterns. Nil and the zero value send no credentials.
type Credentials struct{ users *clientcmdapi.Config }

// LoadCredentials loads the kubeconfig that a WebhookAdmissionConfiguration names. It returns nil
// if the configuration is empty.
func LoadCredentials(configuration []byte) (*Credentials, error) {
	if len(configuration) == 0 {
		return nil, nil
	}
	var settings struct {
		APIVersion     string `json:"apiVersion"`
		Kind           string `json:"kind"`
		KubeConfigFile string `json:"kubeConfigFile"`
	}
	err := admissionconfig.Decode(configuration, &settings,
		schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "WebhookAdmissionConfiguration"},
		schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1alpha1", Kind: "WebhookAdmission"})
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(settings.KubeConfigFile) {
		return nil, fmt.Errorf("kubeConfigFile: Invalid value: %q: must be an absolute file path", settings.KubeConfigFile)
	}
	users, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: settings.KubeConfigFile}).Load()
	if err != nil {
		return nil, err
	}
	return &Credentials{users: users}, nil
}

// httpsPort is the default port of https URLs. Names of users in the kubeconfig may omit it.
const httpsPort = "443"

// forHost returns a client configuration with the credentials for a host and port. It uses the
// first user that exists. For a.b.svc:443 it tries, in this order:
//
//	a.b.svc:443, *.b.svc:443, *.svc:443
//	a.b.svc, *.b.svc, *.svc    only for port 443
//	*
//	the user of the current context
func (c *Credentials) forHost(hostPort string) (*rest.Config, error) {
	if c == nil || c.users == nil {
		return restConfig(nil)
	}
	if u := c.userFor(hostPort); u != nil {
		return restConfig(u)
	}
	if host, port, err := net.SplitHostPort(hostPort); err == nil && port == httpsPort {
		if u := c.userFor(host); u != nil {
			return restConfig(u)
		}
	}
	if u := c.users.AuthInfos["*"]; u != nil {
		return restConfig(u)
	}
	if current := c.users.Contexts[c.users.CurrentContext]; current != nil {
		return restConfig(c.users.AuthInfos[current.AuthInfo])
	}
	return restConfig(nil)
}

// userFor returns the user named target, or else the user named by the longest pattern "*.parent"
// that matches target. It returns nil if there is none.
func (c *Credentials) userFor(target string) *clientcmdapi.AuthInfo {
	if u := c.users.AuthInfos[target]; u != nil {
		return u
	}
	for host := target; ; {
		_, parent, ok := strings.Cut(host, ".")
		if !ok {
			return nil
		}
		if u := c.users.AuthInfos["*."+parent]; u != nil {
			return u
		}
		host = parent
	}
}

// restConfig returns the client configuration for a user of the kubeconfig. If authInfo is nil, it
// has no credentials.
func restConfig(authInfo *clientcmdapi.AuthInfo) (*rest.Config, error) {
	config := &rest.Config{UserAgent: userAgent}
	if authInfo == nil {
		return config, nil
	}
	if authInfo.AuthProvider != nil {
		return nil, errors.New("auth provider not supported")
	}
	config.BearerToken = authInfo.Token
	config.BearerTokenFile = authInfo.TokenFile
	config.Username = authInfo.Username
	config.Password = authInfo.Password
	config.CertData = authInfo.ClientCertificateData
	config.CertFile = authInfo.ClientCertificate
	config.KeyData = authInfo.ClientKeyData
	config.KeyFile = authInfo.ClientKey
	config.Impersonate = rest.ImpersonationConfig{
		UserName: authInfo.Impersonate,
		UID:      authInfo.ImpersonateUID,
		Groups:   authInfo.ImpersonateGroups,
		Extra:    authInfo.ImpersonateUserExtra,
	}
	config.ExecProvider = authInfo.Exec
	return config, nil
}
