package kubeclient_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/libs/kubeclient"
	"binnacle/libs/serving/tlsfiles"
)

// fakeTransport is a transport that responds without a network.
type fakeTransport func(*http.Request) (*http.Response, error)

func (s fakeTransport) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// recordedMessages records log messages.
type recordedMessages struct {
	slog.Handler
	messages []string
}

func (m *recordedMessages) Enabled(context.Context, slog.Level) bool { return true }

func (m *recordedMessages) Handle(_ context.Context, r slog.Record) error {
	m.messages = append(m.messages, r.Message)
	return nil
}

func newResponse(code int, body io.Reader) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(body)}
}

// TestProbeDelayGrowsAndRepeatedResultIsLoggedOnce checks that the delay between probes doubles up
// to 10 s, restarts after a success, and that a repeated result is not logged again.
func TestProbeDelayGrowsAndRepeatedResultIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		var probeTimes []time.Duration
		// responds holds whether the server responds to each probe.
		responds := []bool{9: true, 10: true, 11: false, 12: false, 13: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		log := &recordedMessages{Handler: slog.DiscardHandler}
		probe, err := kubeclient.NewProbe(&rest.Config{
			Host: "http://x",
			Transport: fakeTransport(func(*http.Request) (*http.Response, error) {
				probeTimes = append(probeTimes, time.Since(started).Round(time.Millisecond))
				index := len(probeTimes) - 1
				if index == len(responds)-1 {
					cancel()
				}
				if responds[index] {
					return newResponse(http.StatusOK, strings.NewReader("ok")), nil
				}
				return newResponse(http.StatusInternalServerError, strings.NewReader("no")), nil
			}),
		}, slog.New(log))
		if err != nil {
			t.Fatal(err)
		}
		if err := probe.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want error %v", err, context.Canceled)
		}
		want := []time.Duration{0, 200, 600, 1400, 3000, 6200, 12600, 22600, 32600, 42600, 52600, 62600, 62700, 62900}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(probeTimes, want) {
			t.Errorf("probed after %v, want %v", probeTimes, want)
		}
		if want := []string{"waiting for the API server", "API server reached",
			"waiting for the API server"}; !slices.Equal(log.messages, want) {
			t.Errorf("logged %q, want %q", log.messages, want)
		}
	})
}

// TestCanceledProbeIsNotAFailure checks that a canceled probe is not reported, and that a truncated
// response is.
func TestCanceledProbeIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		probes := 0
		probe, err := kubeclient.NewProbe(&rest.Config{
			Host: "http://x",
			Transport: fakeTransport(func(r *http.Request) (*http.Response, error) {
				probes++
				if probes == 1 {
					return newResponse(http.StatusOK, iotest.ErrReader(errors.New("truncated"))), nil
				}
				cancel()
				return nil, r.Context().Err()
			}),
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		_ = probe.Run(ctx)
		if err := probe.Check(nil); err == nil || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("Check() = %v, want a truncated error", err)
		}
	})
}

// TestNewProbeErrors checks the errors for configurations without a usable client or address.
func TestNewProbeErrors(t *testing.T) {
	for want, c := range map[string]*rest.Config{
		"client for the API server":  {Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAFile: "/no/such"}},
		"address of the API server:": {Host: "http://a b"},
	} {
		if _, err := kubeclient.NewProbe(c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestCertificatesReturnsOnlyConfiguredCertificates checks that only configured certificates are
// returned.
func TestCertificatesReturnsOnlyConfiguredCertificates(t *testing.T) {
	cert, key, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{Dir: t.TempDir(), Name: "a", DNS: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, test := range map[string]struct {
		config rest.TLSClientConfig
		want   string // uses, or a part of the error
	}{
		"no certificate": {config: rest.TLSClientConfig{}, want: ""},
		"files":          {config: rest.TLSClientConfig{CertFile: cert, KeyFile: key, CAFile: cert}, want: "x x-ca"},
		"data":           {config: rest.TLSClientConfig{CertData: read(cert), KeyData: read(key), CAData: read(cert)}, want: "x"},
		"data above files": {
			config: rest.TLSClientConfig{
				CertData: read(cert),
				KeyData:  read(key),
				CertFile: "/no/such",
				CAFile:   "/no/such",
				CAData:   read(cert),
			},
			want: "x",
		},
		"no such file": {config: rest.TLSClientConfig{CertFile: "/no/such", KeyFile: key}, want: "client certificate: "},
		"no such CA":   {config: rest.TLSClientConfig{CAFile: "/no/such"}, want: "certificate authority: "},
	} {
		certificates, err := kubeclient.Certificates("x", &rest.Config{TLSClientConfig: test.config})
		if got := usesOf(certificates, err); got != test.want && (err == nil || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{Server: "https://x"}
	config.AuthInfos["x"] = &clientcmdapi.AuthInfo{ClientCertificate: cert, ClientKey: key}
	config.Contexts["x"], config.CurrentContext = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}, "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	if got := usesOf(kubeclient.CertificatesOf("y", path)); got != "y" {
		t.Errorf("from a file: %s, want \"y\"", got)
	}
	if got := usesOf(kubeclient.CertificatesOf("y", "/no/such")); !strings.HasPrefix(got, "client configuration: ") {
		t.Errorf("missing file: got %s, want an error of the client configuration", got)
	}
}

func usesOf(certificates []tlsfiles.Certificate, err error) string {
	if err != nil {
		return err.Error()
	}
	uses := make([]string, 0, len(certificates))
	for _, c := range certificates {
		uses = append(uses, c.Use)
	}
	return strings.Join(uses, " ")
}
