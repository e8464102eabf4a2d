package clientcerts_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writeCertificate returns the files of a new certificate for a name.
func writeCertificate(t *testing.T, name string) (cert, key string) {
	t.Helper()
	cert, key, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{Dir: t.TempDir(), Name: name, DNS: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// certificate returns a new certificate for a name.
func certificate(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	pair, err := tlsfiles.LoadPair(writeCertificate(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Certificate()
}

// TestRenewalUsesNewConnections checks that the next request uses the new certificate, and that
// requests in progress complete on old connections.
func TestRenewalUsesNewConnections(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			// 1. The server returns the certificate and the address of the client. It holds
			// requests to /long.
			proceed := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				user := r.Proto + " none"
				if c := r.TLS.PeerCertificates; len(c) > 0 {
					user = r.Proto + " " + c[0].DNSNames[0]
				}
				if r.URL.Path == "/long" {
					w.(http.Flusher).Flush()
					<-proceed
				}
				_, _ = io.WriteString(w, user+" "+r.RemoteAddr)
			}))
			server.TLS, server.EnableHTTP2 = &tls.Config{ClientAuth: tls.RequestClientCert}, http2
			server.StartTLS()
			defer server.Close()
			trusted := x509.NewCertPool()
			trusted.AddCert(server.Certificate())

			// 2. The pool uses the certificate in current.
			var current atomic.Pointer[tls.Certificate]
			pool := clientcerts.NewPool(current.Load, func(getCertificate clientcerts.CertificateFunc) *http.Transport {
				return &http.Transport{
					ForceAttemptHTTP2: http2,
					TLSClientConfig:   &tls.Config{RootCAs: trusted, GetClientCertificate: getCertificate},
				}
			})
			defer pool.CloseIdleConnections()
			get := func(path string) *http.Response {
				t.Helper()
				resp, err := (&http.Client{Transport: pool}).Get(server.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				return resp
			}
			bodyOf := func(resp *http.Response) string {
				t.Helper()
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			checkUser := func(user string) (all string) {
				t.Helper()
				all = bodyOf(get("/"))
				if want := name + " " + user + " "; len(all) < len(want) || all[:len(want)] != want {
					t.Fatalf("the server saw %q, want %q", all, want)
				}
				return all
			}

			// 3. A connection is reused while the certificate stays the same.
			checkUser("none")
			current.Store(certificate(t, "first"))
			before := checkUser("first")
			if after := checkUser("first"); after != before {
				t.Errorf("got connection %s, want %s reused", after, before)
			}

			// 4. A new certificate is used by new connections. A request in progress ends on its
			// connection.
			old := pool.Transport()
			defer old.CloseIdleConnections()
			long := get("/long")
			current.Store(certificate(t, "second"))
			checkUser("second")
			close(proceed)
			if got := bodyOf(long); got[:len(name)+6] != name+" first" {
				t.Errorf("request in progress: got %q, want it served with the first certificate", got)
			}
			current.Store(nil)
			checkUser("none")
		})
	}
}

// TestConcurrentRenewalHappensOnce checks that two requests that see a new certificate at the same
// time share one transport, and that idle connections do not outlive their certificate.
func TestConcurrentRenewalHappensOnce(t *testing.T) {
	closed := make(chan bool, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- true
		}
	}
	server.Start()
	defer server.Close()
	before, after := &tls.Certificate{}, &tls.Certificate{}
	certificate := before
	meanwhile := func() {} // runs once, between reading the certificate and using it
	opened := 0
	pool := clientcerts.NewPool(func() *tls.Certificate {
		current := certificate
		hook := meanwhile
		meanwhile = func() {}
		hook()
		return current
	}, func(clientcerts.CertificateFunc) *http.Transport { opened++; return &http.Transport{} })
	defer pool.CloseIdleConnections()
	resp, err := (&http.Client{Transport: pool}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	var renewedMeanwhile *http.Transport
	meanwhile = func() {
		certificate = after
		renewedMeanwhile = pool.Transport()
	}
	if own := pool.Transport(); own != renewedMeanwhile || opened != 2 {
		t.Errorf("got %d transports, want 2; same transport: %t", opened, own == renewedMeanwhile)
	}
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("idle connection with the old certificate: got it open, want it closed")
	}
}

// TestReloadingCertificateReloadsFiles checks that files are read again after a second, and that an
// incomplete renewal is ignored.
func TestReloadingCertificateReloadsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		copyFile := func(from, to string) {
			t.Helper()
			data, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		certFile, keyFile := writeCertificate(t, "first")
		copyFile(certFile, cert)
		copyFile(keyFile, key)
		pair, err := tlsfiles.LoadPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		current := clientcerts.ReloadingCertificate(pair)
		first := current()
		certFile, keyFile = writeCertificate(t, "second")
		if current() != first {
			t.Error("unchanged files: got another certificate, want the cached one")
		}
		time.Sleep(time.Second)
		copyFile(certFile, cert)
		if got := current(); got != first {
			t.Errorf("incomplete renewal: got the certificate of %s, want that of first", got.Leaf.DNSNames)
		}
		time.Sleep(time.Second)
		copyFile(keyFile, key)
		if got := current().Leaf.DNSNames[0]; got != "second" {
			t.Errorf("after a second: got the certificate of %s, want second", got)
		}
		certFile, keyFile = writeCertificate(t, "third")
		copyFile(certFile, cert)
		copyFile(keyFile, key)
		if got := current().Leaf.DNSNames[0]; got != "second" {
			t.Errorf("within the second: got the certificate of %s, want second", got)
		}
		time.Sleep(time.Second)
		if got := current().Leaf.DNSNames[0]; got != "third" {
			t.Errorf("a second later: got the certificate of %s, want third", got)
		}
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := current().Leaf.DNSNames[0]; got != "third" {
			t.Errorf("without the key file: got the certificate of %s, want third", got)
		}
	})
}
