package callout_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/services/apiserver/internal/callout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kubeconfig writes the way to a server and who we are there.
func kubeconfig(t *testing.T, s *httptest.Server, url string, who *clientcmdapi.AuthInfo) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
	c.AuthInfos["u"] = who
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCredentialsAreSent(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Proto, r.Header.Get("Authorization"), r.UserAgent())
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("of-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Args: []string{"-c", `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of-a-plugin"}}'`},
	}
	for want, who := range map[string]*clientcmdapi.AuthInfo{
		"Bearer given":       {Token: "given"},
		"Bearer of-a-file":   {TokenFile: tokenFile},
		"Bearer of-a-plugin": {Exec: plugin},
		"Basic YTpi":         {Username: "a", Password: "b"},
	} {
		service, err := callout.Load(kubeconfig(t, s, s.URL+"/path", who))
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
			t.Errorf("the service saw %s, want %s: %v", got, want, err)
		}
		service.Close()
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/asked" {
			t.Errorf("%s was asked", r.URL.Path)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	service, err := callout.Load(kubeconfig(t, s, s.URL+"/asked", &clientcmdapi.AuthInfo{}))
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
		t.Errorf("answer %s", resp.Status)
	}
}

func TestBrokenKubeconfigs(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	nobody := &clientcmdapi.AuthInfo{}
	for name, file := range map[string]string{
		"absent": broken + ".not", "broken": broken,
		"http":        kubeconfig(t, s, strings.Replace(s.URL, "https", "http", 1), nobody),
		"parameters":  kubeconfig(t, s, s.URL+"/?a=b", nobody),
		"no host":     kubeconfig(t, s, "https:///x", nobody),
		"certificate": kubeconfig(t, s, s.URL, &clientcmdapi.AuthInfo{ClientCertificate: broken, ClientKey: broken}),
	} {
		if _, err := callout.Load(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
