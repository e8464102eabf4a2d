package webhookclient_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// TestClientCertificateIsRenewed checks that a service that is called continuously sees a renewed
// client certificate.
func TestClientCertificateIsRenewed(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS.PeerCertificates[0].DNSNames[0])
	}))
	server.TLS, server.EnableHTTP2 = &tls.Config{ClientAuth: tls.RequireAnyClientCert}, true
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	user := &clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(dir, "tls.crt"), ClientKey: filepath.Join(dir, "tls.key")}
	renew := func(name string) {
		t.Helper()
		cert, key, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{Dir: t.TempDir(), Name: name, DNS: []string{name}})
		if err == nil {
			err = os.Rename(cert, user.ClientCertificate)
		}
		if err == nil {
			err = os.Rename(key, user.ClientKey)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	renew("first")
	for name, load := range map[string]func(string, webhookclient.Dial) (*webhookclient.Service, error){
		"one connection": webhookclient.Load,
		"several":        webhookclient.LoadHTTP1,
	} {
		service, err := load(kubeconfig(t, server, server.URL, user), nil)
		if err != nil {
			t.Fatal(err)
		}
		for last, until := "", time.Now().Add(20*time.Second); last != name; {
			resp, err := service.Client.Post(service.URL, "application/json", nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || time.Now().After(until) {
				t.Fatalf("%s: got certificate %q until the deadline, %v, want the renewed one", name, text, err)
			}
			if last == "" {
				renew(name)
			}
			last = string(text)
		}
		service.Close()
	}
}
