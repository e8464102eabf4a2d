package kubeclient_test

import (
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/libs/kubeclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kubeconfig writes a kubeconfig for a server and returns its path.
func kubeconfig(t *testing.T, server string, ca []byte) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["x"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConfigUsesKubeconfigAndMaster checks the address and the credentials for --kubeconfig and
// --master.
func TestConfigUsesKubeconfigAndMaster(t *testing.T) {
	path := kubeconfig(t, "https://one:6443", nil)
	t.Setenv("KUBECONFIG", path) // must be ignored
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name               string
		kubeconfig, master string
		host, token        string
		want               string // of the error
	}{
		{name: "kubeconfig", kubeconfig: path, master: "", host: "https://one:6443", token: "secret", want: ""},
		{name: "kubeconfig and master", kubeconfig: path, master: "https://two", host: "https://two", token: "secret", want: ""},
		{name: "master alone", kubeconfig: "", master: "http://three", host: "http://three", token: "", want: ""},
		{name: "neither", kubeconfig: "", master: "", host: "", token: "", want: "--kubeconfig"},
		{name: "missing file", kubeconfig: "/no/such", master: "", host: "", token: "", want: "/no/such"},
		{name: "broken file", kubeconfig: broken, master: "", host: "", token: "", want: "broken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			options := kubeclient.NewOptions()
			options.Kubeconfig, options.Master = tt.kubeconfig, tt.master
			config, err := options.Config("tokencleaner")
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != tt.host || config.BearerToken != tt.token || !strings.HasPrefix(config.UserAgent, "tokencleaner/") {
				t.Errorf("host %q, token %q, agent %q, want %q, %q, and an agent of tokencleaner", config.Host,
					config.BearerToken, config.UserAgent, tt.host, tt.token)
			}
		})
	}
}

// TestValidateRejectsRatesOfZero checks that rates of zero are rejected.
func TestValidateRejectsRatesOfZero(t *testing.T) {
	options := kubeclient.NewOptions()
	if errs := options.Validate(); len(errs) != 0 {
		t.Errorf("defaults: got errors %v, want none", errs)
	}
	options.QPS, options.Burst = 0, 0
	if errs := options.Validate(); len(errs) != 2 {
		t.Errorf("rates of zero: got errors %v, want 2", errs)
	}
}

// TestProbeReportsReachability uses an API server that is not ready at first.
func TestProbeReportsReachability(t *testing.T) {
	tests := []struct {
		name    string
		status  int
		reached bool
		wantErr string
	}{
		{name: "ready", status: http.StatusOK, reached: true, wantErr: ""},
		{name: "forbidden", status: http.StatusForbidden, reached: true, wantErr: ""},
		{name: "unauthorized", status: http.StatusUnauthorized, reached: false, wantErr: "rejected the client credentials"},
		{name: "not ready", status: http.StatusInternalServerError, reached: false, wantErr: "status 500"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int32
			thirdRequest := make(chan struct{})
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("got request of %s with headers %v, want /readyz with Bearer secret", r.URL, r.Header)
				}
				if requests.Add(1) == 3 {
					close(thirdRequest)
				}
				w.WriteHeader(tt.status)
			}))
			defer server.Close()
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			probe := newProbe(t, kubeconfig(t, server.URL, ca))
			if err := probe.Check(nil); err == nil {
				t.Error("Check() before the first probe = nil, want an error")
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- probe.Run(ctx) }()
			if tt.reached {
				<-probe.Ready()
			} else {
				<-thirdRequest // it continues to probe
			}
			err := probe.Check(nil)
			if (err == nil) != tt.reached || (err != nil && !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("Check() = %v, want nil: %t, otherwise an error with %q", err, tt.reached, tt.wantErr)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %v, want error %v", err, context.Canceled)
			}
		})
	}
}

// TestProbeReportsFailure checks that the check fails while the API server has not responded yet.
func TestProbeReportsFailure(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	p := newProbe(t, kubeconfig(t, server.URL, nil))
	if err := p.Check(nil); err == nil || !strings.Contains(err.Error(), "waiting for the API server") {
		t.Errorf("Check() = %v, want the error: waiting for the API server", err)
	}
}

func newProbe(t *testing.T, kubeconfig string) *kubeclient.Probe {
	t.Helper()
	o := kubeclient.NewOptions()
	o.Kubeconfig = kubeconfig
	var config *rest.Config
	config, err := o.Config("test")
	if err != nil {
		t.Fatal(err)
	}
	p, err := kubeclient.NewProbe(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
