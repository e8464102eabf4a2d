package healthcheck_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/libs/healthcheck"
	"binnacle/libs/options"
	"binnacle/libs/serving/tlsfiles"
)

// TestClientCertificateIsPresented checks that --cert and --key identify the client.
func TestClientCertificateIsPresented(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "no certificate", http.StatusUnauthorized)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "client.key")
	private, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		cert: tlsfiles.EncodeCertificate(server.Certificate().Raw),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		args []string
		want string
		code int
	}{
		{args: []string{"--cert=" + cert, "--key=" + key}, want: "", code: options.ExitOK},
		{args: nil, want: "401 Unauthorized: no certificate", code: options.ExitFailed},
		{args: []string{"--cert=" + cert, "--key=" + key + "x"}, want: "--cert and --key", code: options.ExitFailed},
		{args: []string{"--cert=" + cert}, want: "--cert and --key must be given together", code: options.ExitUsage},
	} {
		var stderr bytes.Buffer
		command := healthcheck.Command()
		code := options.Main(t.Context(), "testd healthcheck", command.Short, command.Options, command.Run,
			append(test.args, "--url="+server.URL, "--cacert="+cert), io.Discard, &stderr)
		if code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%q: got exit code %d, want %d: %s", test.args, code, test.code, stderr.String())
		}
	}
}

// TestExitCodeFollowsHealth checks the exit code and the error text for healthy, failing and
// unreachable servers.
func TestExitCodeFollowsHealth(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			http.Error(w, "[-]etcd failed: reason withheld", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(caFile, tlsfiles.EncodeCertificate(server.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		url, cacert, want string
		code              int
	}{
		{url: server.URL + "/livez", cacert: caFile, want: "", code: options.ExitOK},
		{url: server.URL + "/readyz", cacert: caFile, want: "500 Internal Server Error: [-]etcd failed", code: options.ExitFailed},
		{url: "https://127.0.0.1:1/livez", cacert: caFile, want: "connection refused", code: options.ExitFailed},
		{url: server.URL + "/livez", cacert: caFile + "x", want: "--cacert", code: options.ExitFailed},
		{url: "http://127.0.0.1:1/livez", cacert: caFile, want: "--url must be an https URL", code: options.ExitUsage},
		{url: server.URL + "/livez", cacert: "", want: "--cacert is required", code: options.ExitUsage},
	} {
		var stderr bytes.Buffer
		command := healthcheck.Command()
		code := options.Main(t.Context(), "testd healthcheck", command.Short, command.Options, command.Run,
			[]string{"--url=" + test.url, "--cacert=" + test.cacert}, io.Discard, &stderr)
		if code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: got exit code %d, want %d: %s", test.url, code, test.code, stderr.String())
		}
	}
}
