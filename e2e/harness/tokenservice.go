package harness

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// webhookClient is the user name of the API server as a client of the webhook services.
const webhookClient = "system:binnacle:apiserver"

// WithTokenService makes the server review all bearer tokens, also those of service accounts, with
// the token review service at a local port.
func WithTokenService(port int) Option {
	return func(s *Server) {
		s.args = slices.DeleteFunc(s.args, func(arg string) bool { return strings.HasPrefix(arg, "--service-account-key-file=") })
		s.args = append(s.args,
			"--authentication-token-webhook-config-file="+s.KubeconfigAt(fmt.Sprintf("https://127.0.0.1:%d", port),
				s.PKI.Client(webhookClient, "system:binnacle")),
			"--authentication-token-webhook-version=v1",
		)
	}
}

// TokenService is authn-webhook in its own process.
type TokenService struct {
	*Process
	URL  string
	args []string
}

// StartTokenService starts a token review service for a server and waits until it is ready. Several
// can share a port.
func (s *Server) StartTokenService(port int, flags ...string) *TokenService {
	s.t.Helper()
	const name = string(AuthnWebhook)
	serving := s.PKI.Serving(name + "-" + rand.Text()) // a replica that watches its own file keeps it unchanged
	tokenService := &TokenService{Process: NewProcess(s.t, name, Binary(s.t, AuthnWebhook)), URL: fmt.Sprintf("https://127.0.0.1:%d", port)}
	tokenService.args = append([]string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--permit-port-sharing",
		"--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + s.PKI.CA, "--allowed-client-names=" + webhookClient,
		"--kubeconfig=" + s.Kubeconfig(s.PKI.Client("system:binnacle:"+name, "system:binnacle")),
		"--enable-bootstrap-token-auth", "--service-account-issuer=" + ServiceAccountIssuer,
		"--service-account-key-file=" + s.Signer.CertFile,
	}, flags...)
	tokenService.Start()
	return tokenService
}

// Start starts or restarts the service on the same port.
func (r *TokenService) Start() {
	r.t.Helper()
	r.Process.Start(r.args...)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	r.waitUntil("ready", func() error { return expectOK(client, r.URL+"/readyz") })
}
