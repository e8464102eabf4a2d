package webhookclient_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kubeconfig writes a kubeconfig with the address of a server and credentials.
func kubeconfig(
	t *testing.T,
	s *httptest.Server,
	url string,
	user *clientcmdapi.AuthInfo,
	change ...func(*clientcmdapi.Cluster),
) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: caBundle(s)}
	for _, f := range change {
		f(c.Clusters["c"])
	}
	c.AuthInfos["u"] = user
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCredentialsOfKubeconfigAreSent checks that the service receives the credentials of the kubeconfig,
// whatever their source.
func TestCredentialsOfKubeconfigAreSent(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Proto, r.Header.Get("Authorization"), r.UserAgent())
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("of-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := &clientcmdapi.ExecConfig{
		APIVersion:      "client.authentication.k8s.io/v1",
		Command:         "/bin/sh",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Args: []string{
			"-c", `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of-a-plugin"}}'`,
		},
	}
	for want, user := range map[string]*clientcmdapi.AuthInfo{
		"Bearer given":       {Token: "given"},
		"Bearer of-a-file":   {TokenFile: tokenFile},
		"Bearer of-a-plugin": {Exec: plugin},
		"Basic YTpi":         {Username: "a", Password: "b"},
	} {
		service, err := webhookclient.Load(kubeconfig(t, server, server.URL+"/path", user), nil)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		resp, err := service.Client.Post(service.URL, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := string(body); err != nil || !strings.HasPrefix(got, "HTTP/2.0 "+want+" ") || !strings.Contains(got, "apiserver") {
			t.Errorf("the service got %s, want %s: %v", got, want, err)
		}
		service.Close()
	}
}

// TestRedirectsAreNotFollowed checks that a service cannot redirect requests to another address.
func TestRedirectsAreNotFollowed(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/asked" {
			t.Errorf("got a request for %s, want /asked", r.URL.Path)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	service, err := webhookclient.Load(kubeconfig(t, s, s.URL+"/asked", &clientcmdapi.AuthInfo{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	resp, err := service.Client.Post(service.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("got %s, want the redirect", resp.Status)
	}
}

// TestProxyOfKubeconfigIsUsed checks that the proxy of a kubeconfig resolves the name of the service.
func TestProxyOfKubeconfigIsUsed(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "asked "+r.Host) }))
	defer server.Close()
	proxied := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied <- r.Method + " " + r.Host
		target, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer target.Close()
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			t.Error(err)
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(target, buffered)
			target.Close()
		}()
		_, _ = io.Copy(client, target)
		client.Close()
		<-done
	}))
	defer proxy.Close()
	service, err := webhookclient.Load(kubeconfig(t,
		server, "https://example.com", &clientcmdapi.AuthInfo{}, func(c *clientcmdapi.Cluster) { c.ProxyURL = proxy.URL }),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	resp, err := service.Client.Post(service.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if got := <-proxied; err != nil || string(body) != "asked example.com" || got != "CONNECT example.com:443" {
		t.Errorf("got %q through %q, %v, want the response of example.com through CONNECT example.com:443", body, got, err)
	}
}

// TestNewClientSendsTokenAndLimitsResponse checks that the client sends its bearer token, trusts inline
// certificate data before files, and rejects a response above its limit.
func TestNewClientSendsTokenAndLimitsResponse(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			fmt.Fprint(w, strings.Repeat("x", 101))
		} else {
			fmt.Fprint(w, r.Header.Get("Authorization"), strings.Repeat("x", 90))
		}
	}))
	defer server.Close()
	// Inline data takes precedence over files.
	der, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, release, err := webhookclient.NewClient(&rest.Config{
		BearerToken: "t",
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   caBundle(server),
			CertFile: "/absent",
			CertData: caBundle(server),
			KeyFile:  "/absent",
			KeyData:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		},
	}, at, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for path, want := range map[string]string{"/": "", "/long": "the response of the webhook is too long"} {
		resp, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if (err != nil || want != "") && (err == nil || err.Error() != want) ||
			err == nil && string(body) != "Bearer t"+strings.Repeat("x", 90) {
			t.Errorf("%s: got %q, %v, want error %q, or the token", path, body, err, want)
		}
	}
}

// TestNewClientRejectsBrokenConfigs checks that NewClient returns an error for files and credentials
// that cannot be used.
func TestNewClientRejectsBrokenConfigs(t *testing.T) {
	at := &url.URL{Scheme: "https", Host: "webhook.invalid"}
	for name, broken := range map[string]*rest.Config{
		"two plugins": {ExecProvider: &clientcmdapi.ExecConfig{}, AuthProvider: &clientcmdapi.AuthProviderConfig{}},
		"authority":   {TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}},
		"certificate": {TLSClientConfig: rest.TLSClientConfig{CertFile: "/absent", KeyFile: "/absent"}},
		"two names":   {BearerToken: "t", Username: "u", Password: "p"},
	} {
		if _, _, err := webhookclient.NewClient(broken, at, 100, nil); err == nil {
			t.Errorf("NewClient with %s: got no error, want one", name)
		}
	}
}

// TestBrokenKubeconfigsAreRejected checks that Load returns an error that names the file.
func TestBrokenKubeconfigsAreRejected(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	noUser := &clientcmdapi.AuthInfo{}
	distrusting := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(distrusting, []byte(`{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1","certificate-authority-data":"YQ=="}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"absent": broken + ".not", "broken": broken,
		"ftp":         kubeconfig(t, server, strings.Replace(server.URL, "https", "ftp", 1), noUser),
		"parameters":  kubeconfig(t, server, server.URL+"/?a=b", noUser),
		"fragment":    kubeconfig(t, server, server.URL+"#a", noUser),
		"no address":  kubeconfig(t, server, server.URL+"/%zz", noUser),
		"no host":     kubeconfig(t, server, "https:///x", noUser),
		"certificate": kubeconfig(t, server, server.URL, &clientcmdapi.AuthInfo{ClientCertificate: broken, ClientKey: broken}),
		"authority":   distrusting,
		"plugin": kubeconfig(t, server, server.URL, &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion:      "v0",
			Command:         "/bin/sh",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}),
	} {
		if _, err := webhookclient.Load(file, nil); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("Load of %s: got error %v, want one that names the file %s", name, err, file)
		}
	}
}

// TestCostOfServerIsBounded checks that a webhook can make neither the verification of its
// certificate nor the head of its response costly.
func TestCostOfServerIsBounded(t *testing.T) {
	for want, change := range map[string]func(*httptest.Server){
		"11 certificates were presented": func(server *httptest.Server) {
			server.TLS.Certificates[0].Certificate = slices.Repeat(server.TLS.Certificates[0].Certificate, 11)
		},
		"server response headers exceeded ": func(server *httptest.Server) { server.TLS.NextProtos = []string{"http/1.1"} },
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range 10_000 {
				w.Header().Set(fmt.Sprintf("X-%d", i), "")
			}
		}))
		defer server.Close()
		change(server)
		at, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		client, release, err := webhookclient.NewClient(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: caBundle(server)}},
			at, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		resp, err := client.Get(server.URL)
		if err == nil {
			resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
