package config

import (
	"log/slog"
	"strings"
)

// WarnInsecure logs what makes a server insecure or unusable, and the flags that change it. The
// defaults are those of Kubernetes, which are not meant to be used as they are.
func (o *Options) WarnInsecure(log *slog.Logger) {
	var problems []string
	if o.Authorization.allowsEverything() {
		problems = append(problems, "every authenticated client may do everything: set --authorization-mode=Node,RBAC")
		if ip := o.Serving.BindAddress; ip == nil || ip.IsUnspecified() {
			problems = append(problems, "it listens on all interfaces: set --bind-address")
		}
	}
	if !o.authenticatesClients() {
		problems = append(problems, "no client can authenticate: set --client-ca-file, --token-auth-file, --authentication-token-webhook-config-file or --authentication-config")
	}
	if len(problems) > 0 {
		log.Warn("this server is not configured for use", "problems", strings.Join(problems, "; "))
	}
}

// authenticatesClients reports whether clients other than the server itself can authenticate.
func (o *Options) authenticatesClients() bool {
	a := &o.Authentication
	return o.Serving.ClientCAFile != "" || a.TokenFile != "" || a.BootstrapTokens || a.Webhook.Kubeconfig != "" || a.Proxy.CAFile != "" ||
		a.ServiceAccountSigner != "" || a.ServiceAccountSigningEndpoint != "" || a.JWT.File != "" || a.JWT.OIDC.Given()
}
