package webhooks

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// withAuthProvider is a user of a kubeconfig that webhooks cannot use.
func withAuthProvider() *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "x"}}
}

// TestCredentialsForHostPreferMostSpecificName checks that a webhook gets the user with the most
// specific name: host and port, wildcard and port, and at port 443 also names without a port. The
// user of the current context takes precedence over wildcards.
func TestCredentialsForHostPreferMostSpecificName(t *testing.T) {
	// Each user has its name as bearer token.
	users := func(names ...string) *Credentials {
		kubeconfig := clientcmdapi.NewConfig()
		for _, n := range names {
			kubeconfig.AuthInfos[n] = &clientcmdapi.AuthInfo{Token: n}
		}
		return &Credentials{kubeconfig}
	}
	withCurrentContext := users("a", "me")
	withCurrentContext.users.Contexts["x"] = &clientcmdapi.Context{AuthInfo: "me"}
	withCurrentContext.users.CurrentContext = "x"
	for name, test := range map[string]struct {
		users   *Credentials
		address string
		want    string // bearer token
	}{
		"no credentials":              {users: nil, address: "h.ns.svc:443", want: ""},
		"empty credentials":           {users: &Credentials{}, address: "h.ns.svc:443", want: ""},
		"no name matches":             {users: users("other"), address: "h.ns.svc:443", want: ""},
		"host and port":               {users: users("h.ns.svc:443", "h.ns.svc", "*.ns.svc:443", "*"), address: "h.ns.svc:443", want: "h.ns.svc:443"},
		"port before exact host":      {users: users("h.ns.svc", "*.ns.svc:443", "*"), address: "h.ns.svc:443", want: "*.ns.svc:443"},
		"longer wildcard":             {users: users("*.svc:443", "*.ns.svc:443", "*"), address: "h.ns.svc:443", want: "*.ns.svc:443"},
		"short wildcard with port":    {users: users("*.svc:443", "h.ns.svc", "*"), address: "h.ns.svc:443", want: "*.svc:443"},
		"host without port":           {users: users("h.ns.svc", "*.ns.svc", "*"), address: "h.ns.svc:443", want: "h.ns.svc"},
		"wildcard without port":       {users: users("*.ns.svc", "*"), address: "h.ns.svc:443", want: "*.ns.svc"},
		"other port, only star":       {users: users("h.ns.svc", "*.ns.svc", "*"), address: "h.ns.svc:8443", want: "*"},
		"other port, no match":        {users: users("h.ns.svc", "*.ns.svc"), address: "h.ns.svc:8443", want: ""},
		"wildcard needs a label":      {users: users("*.ns.svc:443"), address: "ns.svc:443", want: ""},
		"current context":             {users: withCurrentContext, address: "h.ns.svc:443", want: "me"},
		"name before current context": {users: withCurrentContext, address: "a:443", want: "a"},
	} {
		config, err := test.users.forHost(test.address)
		if err != nil || config.BearerToken != test.want || config.UserAgent != userAgent {
			t.Errorf("%s, address %s: got token %q, user agent %q and error %v; want token %q, user agent %q and no error",
				name, test.address, config.BearerToken, config.UserAgent, err, test.want, userAgent)
		}
	}
	unsupported := users("*")
	unsupported.users.AuthInfos["*"] = withAuthProvider()
	if _, err := unsupported.forHost("h:443"); err == nil {
		t.Error("user with an auth provider: got no error, want one")
	}
}

// TestClientDialsConfiguredAddress checks the address and path of the call of a service or URL, and
// that an invalid configuration fails before any connection.
func TestClientDialsConfiguredAddress(t *testing.T) {
	const port = int32(8443)
	url := func(u string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: &u}
	}
	service := func(name string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: name}}
	}
	withPortAndPath := service("h")
	withPortAndPath.Service.Port, withPortAndPath.Service.Path = new(int32), new(string)
	*withPortAndPath.Service.Port, *withPortAndPath.Service.Path = port, "/p"
	withInvalidCA := url("https://h/q")
	withInvalidCA.CABundle = []byte("x")

	// The credentials for port 443 are unusable, those for port 8443 are valid.
	partlyUnsupported := &Credentials{clientcmdapi.NewConfig()}
	partlyUnsupported.users.AuthInfos["h.ns.svc:443"] = withAuthProvider()
	partlyUnsupported.users.AuthInfos["h.ns.svc:8443"] = &clientcmdapi.AuthInfo{Token: "t"}
	const unsupported = "auth provider not supported"
	for name, test := range map[string]struct {
		config     admissionregistrationv1.WebhookClientConfig
		users      *Credentials
		wantDialed string // dialer and address
		wantPath   string
		wantErr    string // part of the error, if no connection is wanted
	}{
		"neither service nor URL":      {wantErr: "must have either service or URL"},
		"service":                      {config: service("h"), wantDialed: "cluster 10.0.0.1:443"},
		"service, port and path":       {config: withPortAndPath, wantDialed: "cluster 10.0.0.1:8443", wantPath: "/p"},
		"missing service":              {config: service("none"), wantErr: "no such service"},
		"service, unsupported user":    {config: service("h"), users: partlyUnsupported, wantErr: unsupported},
		"URL":                          {config: url("https://h.ns.svc:8443/q"), users: partlyUnsupported, wantDialed: "url h.ns.svc:8443", wantPath: "/q"},
		"URL without a port":           {config: url("https://h.ns.svc/q"), wantDialed: "url h.ns.svc:443", wantPath: "/q"},
		"URL, unsupported user":        {config: url("https://h.ns.svc/q"), users: partlyUnsupported, wantErr: unsupported},
		"URL with an invalid port":     {config: url("https://h:x/q"), wantErr: "invalid port"},
		"CA bundle without a CA in it": {config: withInvalidCA, wantErr: "certificate"},
	} {
		dialed := ""
		failingDial := func(dialer string) webhookclient.Dial {
			return func(_ context.Context, _, addr string) (net.Conn, error) {
				dialed = dialer + " " + addr
				return nil, io.ErrUnexpectedEOF
			}
		}
		clients, err := newClients(&Config{
			Credentials: test.users,
			Dialers:     webhookclient.Dialers{Cluster: failingDial("cluster"), URLs: failingDial("url")},
			Services: &webhookclient.Services{Get: func(_ context.Context, namespace, name string) (*corev1.Service, error) {
				if namespace != "ns" || name != "h" {
					return nil, errors.New("no such service")
				}
				return &corev1.Service{
					Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 443}, {Port: port}}},
				}, nil
			}},
		}, breakerFactory{ctx: t.Context(), metrics: NewMetrics(prometheus.NewRegistry()), log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		caller := clients.callerFor("k", &hook{}, test.config)
		client, err := caller.connect()
		if err == nil {
			again, _ := caller.connect()
			if again != client {
				t.Errorf("%s: the second call created another client, want the first one", name)
			}
			if path := client.Post().URL().Path; path != test.wantPath && path != test.wantPath+"/" {
				t.Errorf("%s: got path %s, want %s", name, path, test.wantPath)
			}
			err = client.Post().Do(t.Context()).Error()
		}
		if dialed != test.wantDialed {
			t.Errorf("%s: got dialed address %q, want %q", name, dialed, test.wantDialed)
		}
		if test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
			t.Errorf("%s: got error %v, want one that contains %q", name, err, test.wantErr)
		}
		clients.retain(nil)
	}
}
