package kubeletproxy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
)

// counters returns the counters of a registry by name and code.
func counters(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return out
}

// dialWebSocket opens a WebSocket at a path of the front end.
func (f *front) dialWebSocket(t *testing.T, path, protocol string) (*websocket.Conn, int, string) {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{protocol}}
	ws, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(f.URL, "http")+path, nil)
	if resp == nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err == nil {
		return ws, resp.StatusCode, ""
	}
	text, _ := io.ReadAll(resp.Body)
	return nil, resp.StatusCode, string(text)
}

const (
	tunnelProtocol  = "SPDY/3.1+portforward.k8s.io"
	channelProtocol = "v5.channel.k8s.io"
)

// TestKubeletErrorsReachClient checks that the status and the text of an error, up to a limit,
// reach the client of a log or a port-forward, and that port-forwards are counted by status.
func TestKubeletErrorsReachClient(t *testing.T) {
	front := newFront(t, translate)
	for name, test := range map[string]struct {
		code int
		text string
	}{
		"absent":  {code: http.StatusNotFound, text: "could not find the requested resource"},
		"400":     {code: http.StatusBadRequest, text: "rejected with 400"},
		"403":     {code: http.StatusForbidden, text: "rejected with 403"},
		"500":     {code: http.StatusInternalServerError, text: "Internal error occurred: rejected with 500"},
		"503":     {code: http.StatusServiceUnavailable, text: "currently unable to handle the request"},
		"cut":     {code: http.StatusInternalServerError, text: "unexpected EOF"},
		"hangup":  {code: http.StatusInternalServerError, text: "EOF"},
		"101":     {code: http.StatusSwitchingProtocols},
		"much":    {code: http.StatusBadRequest, text: "xxx"},
		"api-409": {code: http.StatusConflict, text: "the server reported a conflict"},
	} {
		at := *front.kubelet
		at.Path = "/containerLogs/ns/p/" + name
		log, err := front.upstream.Log(t.Context(), kubeletproxy.Kubelet, &at, "p")
		if err == nil {
			log.Close()
			t.Errorf("log %s: got no error, want one", name)
			continue
		}
		w := httptest.NewRecorder()
		plainErrors{}.Error(w, nil, err)
		if w.Code != test.code && test.code != http.StatusSwitchingProtocols ||
			!strings.Contains(w.Body.String(), test.text) ||
			w.Body.Len() > 51<<10 {
			t.Errorf("log %s: got status %d, %d bytes: %.200s, want %d and %q in at most 51 KiB",
				name, w.Code, w.Body.Len(), w.Body, test.code, test.text)
		}
		if test.code == http.StatusSwitchingProtocols {
			continue // starts a port-forward
		}
		ws, code, text := front.dialWebSocket(t, "/portForward/ns/p/"+name, tunnelProtocol)
		if ws != nil || code != test.code || !strings.Contains(text, test.text) {
			t.Errorf("port %s: got status %d: %s, want %d and %q", name, code, text, test.code, test.text)
		}
	}
	got := counters(t, front.registry)
	for code, n := range map[string]float64{"404": 1, "400": 2, "403": 1, "409": 1, "503": 1, "500": 3} {
		if at := "apiserver_stream_tunnel_requests_total " + code; got[at] != n {
			t.Errorf("%s: got %v, want %v (all: %v)", at, got[at], n, got)
		}
	}
}

// TestCommandResultsAreCounted checks the metric of translated commands: a command that runs counts
// as 200, whatever its exit code.
func TestCommandResultsAreCounted(t *testing.T) {
	front := newFront(t, translate)
	runCommand := func(path string) error {
		x, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: front.URL}, http.MethodGet, front.URL+path)
		if err != nil {
			t.Fatal(err)
		}
		return x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	}
	if err := runCommand("/exec/ns/pod/c?stdout=true&command=true"); err != nil {
		t.Error(err)
	}
	if err := runCommand("/exec/ns/pod/c?stdout=true&command=exit&command=7"); err == nil {
		t.Error("command with exit code 7: got no error, want one")
	}
	err := runCommand("/exec/ns/pod/api-404?stdout=true")
	if err == nil || !strings.Contains(err.Error(), "rejected by the API") || strings.Contains(err.Error(), "Internal error") {
		t.Errorf("got %v, want the error of the kubelet", err)
	}
	if err := runCommand("/exec/ns/pod/hangup?stdout=true"); err == nil {
		t.Error("broken connection: got no error, want one")
	}
	got := counters(t, front.registry)
	for code, n := range map[string]float64{"200": 2, "404": 1, "500": 1} {
		if at := "apiserver_stream_translator_requests_total " + code; got[at] != n {
			t.Errorf("%s: got %v, want %v (all: %v)", at, got[at], n, got)
		}
	}
}

// TestInvalidHandshakeIsBadRequest checks that an exec or port-forward with an incomplete WebSocket
// handshake gets 400.
func TestInvalidHandshakeIsBadRequest(t *testing.T) {
	f := newFront(t, translate)
	for path, protocol := range map[string]string{"/exec/ns/pod/c?stdout=true": channelProtocol, "/portForward/ns/pod": tunnelProtocol} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Connection":             {"Upgrade"},
			"Upgrade":                {"websocket"},
			"Sec-Websocket-Version":  {"13"},
			"Sec-Websocket-Protocol": {protocol},
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: got %s, want 400", path, resp.Status)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestUntranslatedWebSocketIsForwarded checks that without translation the kubelet responds to a
// WebSocket client. The kubelet of the test rejects WebSocket.
func TestUntranslatedWebSocketIsForwarded(t *testing.T) {
	f := newFront(t, untranslated)
	for path, protocol := range map[string]string{"/exec/ns/pod/c?stdout=true": channelProtocol, "/portForward/ns/pod": tunnelProtocol} {
		if ws, code, text := f.dialWebSocket(t, path, protocol); ws != nil || code < http.StatusBadRequest {
			t.Errorf("%s: got status %d: %s, want a rejection", path, code, text)
		}
	}
}

// TestHijackedConnectionEndsWithRequest checks that a command over SPDY or WebSocket ends when the
// server cancels its request.
func TestHijackedConnectionEndsWithRequest(t *testing.T) {
	front := newFront(t, translate)
	ctx, cancel := context.WithCancel(t.Context())
	front.ctx = ctx
	for name, executor := range front.executors(t, "stdin=true&stdout=true&command=cat") {
		in, input := io.Pipe()
		out, seen := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: seen})
		}()
		go func() { _, _ = input.Write([]byte("x")) }()
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done // the connection has ended
		input.Close()
		out.Close()
		t.Log(name)
		ctx, cancel = context.WithCancel(t.Context())
		front.ctx = ctx
	}
	cancel()
}

// writePair writes a certificate and its key.
func writePair(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile:  {Type: "EC PRIVATE KEY", Bytes: raw},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// TestClientCertificateIsRenewed checks that busy connections use a renewed certificate, and never
// half of it.
func TestClientCertificateIsRenewed(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	options := optionsTrusting(t, server)
	options.CertFile, options.KeyFile = writePair(t, t.TempDir(), "first")
	upstream, err := kubeletproxy.New(options, prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	serverURL, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	presentedTo := func(target kubeletproxy.TargetKind) string {
		t.Helper()
		log, err := upstream.Log(t.Context(), target, serverURL, "p")
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		text, err := io.ReadAll(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	// 1. The first certificate is presented while only the certificate of the new pair has been
	// written.
	wantPresented := func(name string) {
		t.Helper()
		for _, target := range []kubeletproxy.TargetKind{kubeletproxy.Kubelet, kubeletproxy.UnverifiedKubelet} {
			if got := presentedTo(target); got != name {
				t.Errorf("target %v: got client certificate %q, want %q", target, got, name)
			}
		}
	}
	wantPresented("first")
	cert, key := writePair(t, t.TempDir(), "second")
	if err := os.Rename(cert, options.CertFile); err != nil {
		t.Fatal(err)
	}
	upstream.Close() // later requests use new connections
	wantPresented("first")

	// 2. The new pair is presented once the key has been written, too.
	if err := os.Rename(key, options.KeyFile); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(20 * time.Second); presentedTo(kubeletproxy.Kubelet) != "second"; {
		if time.Now().After(until) {
			t.Fatal("timeout: got the first certificate, want the renewed one")
		}
	}
	wantPresented("second")

	// 3. Targets other than kubelets never get a client certificate.
	w := httptest.NewRecorder()
	_, port, _ := net.SplitHostPort(serverURL.Host)
	upstream.Proxy(w, httptest.NewRequest(http.MethodGet, "/", nil), kubeletproxy.Target, &url.URL{
		Scheme: "https",
		Host:   net.JoinHostPort("127.0.0.1", port),
	}, plainErrors{})
	if strings.Contains(w.Body.String(), "second") {
		t.Error("target: got the certificate for kubelets presented, want none")
	}
}

// TestInvalidOptionsAndCertificatesAreRejected checks that Validate rejects invalid flags, and that New rejects unreadable
// certificates.
func TestInvalidOptionsAndCertificatesAreRejected(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "a")
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change  func(*kubeletproxy.Options)
		invalid string
		fails   string // error of New
	}{
		"the defaults": {change: func(*kubeletproxy.Options) {}},
		"a pair":       {change: func(options *kubeletproxy.Options) { options.CertFile, options.KeyFile = cert, key }},
		"no key": {
			change:  func(options *kubeletproxy.Options) { options.CertFile = cert },
			invalid: "go together",
			fails:   "--kubelet-client-certificate",
		},
		"no certificate": {change: func(options *kubeletproxy.Options) { options.KeyFile = key }, invalid: "go together"},
		"an invalid certificate": {
			change: func(options *kubeletproxy.Options) { options.CertFile, options.KeyFile = empty, key },
			fails:  "--kubelet-client-certificate",
		},
		"port 0":             {change: func(options *kubeletproxy.Options) { options.Port = 0 }, invalid: "0 is not a port"},
		"a large port":       {change: func(options *kubeletproxy.Options) { options.Port = 65536 }, invalid: "65536 is not a port"},
		"the largest port":   {change: func(options *kubeletproxy.Options) { options.Port = 65535 }},
		"negative timeout":   {change: func(options *kubeletproxy.Options) { options.Timeout = -1 }, invalid: "--kubelet-timeout"},
		"no authority":       {change: func(options *kubeletproxy.Options) { options.CAFile = filepath.Join(dir, "none") }, fails: "no such file"},
		"an empty authority": {change: func(options *kubeletproxy.Options) { options.CAFile = empty }, fails: "has no certificate"},
	} {
		options := kubeletproxy.NewOptions()
		test.change(&options)
		text := ""
		for _, err := range options.Validate() {
			text += err.Error()
		}
		if (text == "") != (test.invalid == "") || !strings.Contains(text, test.invalid) {
			t.Errorf("%s: Validate: got errors %q, want %q", name, text, test.invalid)
		}
		upstream, err := kubeletproxy.New(options, prometheus.NewRegistry(), nil)
		if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: New: got error %v, want %q", name, err, test.fails)
		}
		if upstream != nil {
			upstream.Close()
		}
	}
}

// TestHostsWithoutAddressAreRejected checks that hosts without an address are rejected.
func TestHostsWithoutAddressAreRejected(t *testing.T) {
	if kubeletproxy.Allowed(nil) {
		t.Error("Allowed(nil): got true, want false")
	}
	if err := kubeletproxy.CheckHost(t.Context(), "no-such-host.invalid"); err == nil {
		t.Error("CheckHost(no-such-host.invalid): got no error, want one")
	}
	if err := kubeletproxy.CheckHost(t.Context(), ""); err == nil {
		t.Error("CheckHost of an empty host: got no error, want one")
	}
}
