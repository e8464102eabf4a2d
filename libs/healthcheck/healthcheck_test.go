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
	ca, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "client.key")
	private, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		ca:  tlsfiles.EncodeCertificate(server.Certificate().Raw),
		key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
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
		{args: []string{"--cert=" + ca, "--key=" + key}, want: "", code: options.ExitOK},
		{args: nil, want: "401 Unauthorized: no certificate", code: options.ExitFailed},
		{args: []string{"--cert=" + ca, "--key=" + key + "x"}, want: "--cert and --key", code: options.ExitFailed},
		{args: []string{"--cert=" + ca}, want: "--cert and --key must be given together", code: options.ExitUsage},
	} {
		var errs bytes.Buffer
		h := healthcheck.Command()
		code := options.Main(t.Context(), "testd healthcheck", h.Short, h.Options, h.Run,
			append(test.args, "--url="+server.URL, "--cacert="+ca), io.Discard, &errs)
		if code != test.code || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%q: got exit code %d, want %d: %s", test.args, code, test.code, errs.String())
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
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, tlsfiles.EncodeCertificate(server.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		url, ca, want string
		code          int
	}{
		{url: server.URL + "/livez", ca: ca, want: "", code: options.ExitOK},
		{url: server.URL + "/readyz", ca: ca, want: "500 Internal Server Error: [-]etcd failed", code: options.ExitFailed},
		{url: "https://127.0.0.1:1/livez", ca: ca, want: "connection refused", code: options.ExitFailed},
		{url: server.URL + "/livez", ca: ca + "x", want: "--cacert", code: options.ExitFailed},
		{url: "http://127.0.0.1:1/livez", ca: ca, want: "--url must be an https URL", code: options.ExitUsage},
		{url: server.URL + "/livez", ca: "", want: "--cacert is required", code: options.ExitUsage},
	} {
		var errs bytes.Buffer
		h := healthcheck.Command()
		code := options.Main(t.Context(), "testd healthcheck", h.Short, h.Options, h.Run,
			[]string{"--url=" + test.url, "--cacert=" + test.ca}, io.Discard, &errs)
		if code != test.code || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%s: got exit code %d, want %d: %s", test.url, code, test.code, errs.String())
		}
	}
}
