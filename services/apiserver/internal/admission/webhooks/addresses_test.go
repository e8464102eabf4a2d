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
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// TestCredentialsForHostPreferMostSpecificName covers exact names, wildcards, ports and the current
// context.
func TestCredentialsForHostPreferMostSpecificName(t *testing.T) {
	users := func(names ...string) *Credentials {
		c := clientcmdapi.NewConfig()
		for _, n := range names {
			c.AuthInfos[n] = &clientcmdapi.AuthInfo{Token: n}
		}
		return &Credentials{c}
	}
	current := users("a", "me")
	current.users.Contexts["x"] = &clientcmdapi.Context{AuthInfo: "me"}
	current.users.CurrentContext = "x"
	for _, c := range []struct {
		users    *Credentials
		at, want string
	}{
		{users: nil, at: "h.ns.svc:443", want: ""},
		{users: &Credentials{}, at: "h.ns.svc:443", want: ""},
		{users: users("other"), at: "h.ns.svc:443", want: ""},
		{users: users("h.ns.svc:443", "h.ns.svc", "*.ns.svc:443", "*"), at: "h.ns.svc:443", want: "h.ns.svc:443"},
		{users: users("h.ns.svc", "*.ns.svc:443", "*"), at: "h.ns.svc:443", want: "*.ns.svc:443"},
		{users: users("*.svc:443", "*.ns.svc:443", "*"), at: "h.ns.svc:443", want: "*.ns.svc:443"},
		{users: users("*.svc:443", "h.ns.svc", "*"), at: "h.ns.svc:443", want: "*.svc:443"},
		{users: users("h.ns.svc", "*.ns.svc", "*"), at: "h.ns.svc:443", want: "h.ns.svc"},
		{users: users("*.ns.svc", "*"), at: "h.ns.svc:443", want: "*.ns.svc"},
		{users: users("h.ns.svc", "*.ns.svc", "*"), at: "h.ns.svc:8443", want: "*"},
		{users: users("h.ns.svc", "*.ns.svc"), at: "h.ns.svc:8443", want: ""},
		{users: users("*.ns.svc:443"), at: "ns.svc:443", want: ""},
		{users: current, at: "h.ns.svc:443", want: "me"},
		{users: current, at: "a:443", want: "a"},
	} {
		config, err := c.users.forHost(c.at)
		if err != nil || config.BearerToken != c.want || config.UserAgent != userAgent {
			t.Errorf("%s: %q, %v; want %q", c.at, config.BearerToken, err, c.want)
		}
	}
	odd := users("*")
	odd.users.AuthInfos["*"].AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "x"}
	if _, err := odd.forHost("h:443"); err == nil {
		t.Error("auth provider: error = nil, want one")
	}
}

// TestClientDialsConfiguredAddress covers services, URLs and invalid configurations.
func TestClientDialsConfiguredAddress(t *testing.T) {
	text := func(s string) *string { return &s }
	odd := &Credentials{clientcmdapi.NewConfig()}
	odd.users.AuthInfos["h.ns.svc:443"] = &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "x"}}
	odd.users.AuthInfos["h.ns.svc:8443"] = &clientcmdapi.AuthInfo{Token: "t"}
	const provider = "auth provider not supported"
	port := int32(8443)
	for name, c := range map[string]struct {
		config       admissionv1.WebhookClientConfig
		users        *Credentials
		dials, wrong string
		path         string
	}{
		"nowhere": {wrong: "must have either service or URL"},
		"a service": {
			config: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "h"}},
			dials:  "cluster 10.0.0.1:443",
		},
		"a service, port and path": {
			config: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "h", Port: &port, Path: text("/p")}},
			dials:  "cluster 10.0.0.1:8443", path: "/p",
		},
		"a service that is not": {
			config: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "none"}},
			wrong:  "no such service",
		},
		"a service, a user of none": {
			config: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "h"}},
			users:  odd, wrong: provider,
		},
		"a URL": {
			config: admissionv1.WebhookClientConfig{URL: text("https://h.ns.svc:8443/q")}, users: odd,
			dials: "url h.ns.svc:8443", path: "/q",
		},
		"a URL without a port": {
			config: admissionv1.WebhookClientConfig{URL: text("https://h.ns.svc/q")}, dials: "url h.ns.svc:443",
			path: "/q",
		},
		"a URL, a user of none":     {config: admissionv1.WebhookClientConfig{URL: text("https://h.ns.svc/q")}, users: odd, wrong: provider},
		"no URL":                    {config: admissionv1.WebhookClientConfig{URL: text("https://h:x/q")}, wrong: "invalid port"},
		"certificates that are not": {config: admissionv1.WebhookClientConfig{URL: text("https://h/q"), CABundle: []byte("x")}, wrong: "certificate"},
	} {
		dialed := ""
		dial := func(name string) webhookclient.Dial {
			return func(_ context.Context, _, addr string) (net.Conn, error) {
				dialed = name + " " + addr
				return nil, io.ErrUnexpectedEOF
			}
		}
		clients, err := newClients(&Config{
			Credentials: c.users,
			Dialers:     webhookclient.Dialers{Cluster: dial("cluster"), URLs: dial("url")},
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
		caller := clients.callerFor("k", &hook{}, c.config)
		client, err := caller.connect()
		if err == nil {
			again, _ := caller.connect()
			if again != client {
				t.Errorf("%s: the second call created another client, want the first one", name)
			}
			if path := client.Post().URL().Path; path != c.path && path != c.path+"/" {
				t.Errorf("%s: got path %s, want %s", name, path, c.path)
			}
			err = client.Post().Do(t.Context()).Error()
		}
		if c.wrong == "" && dialed != c.dials ||
			c.wrong != "" && (dialed != "" || err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: dialed %q, %v; want %q, error %q", name, dialed, err, c.dials, c.wrong)
		}
		clients.retain(nil)
	}
}
