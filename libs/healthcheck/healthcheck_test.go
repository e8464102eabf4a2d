package healthcheck_test

import (
	"bytes"
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
	for _, c := range []struct {
		url, ca, want string
		code          int
	}{
		{server.URL + "/livez", ca, "", options.ExitOK},
		{server.URL + "/readyz", ca, "500 Internal Server Error: [-]etcd failed", options.ExitFailed},
		{"https://127.0.0.1:1/livez", ca, "connection refused", options.ExitFailed},
		{server.URL + "/livez", ca + "x", "--cacert", options.ExitFailed},
		{"http://127.0.0.1:1/livez", ca, "--url must be an https URL", options.ExitUsage},
		{server.URL + "/livez", "", "--cacert is required", options.ExitUsage},
	} {
		var errs bytes.Buffer
		h := healthcheck.Command()
		code := options.Main(t.Context(), "testd healthcheck", h.Short, h.Options, h.Run, []string{"--url=" + c.url, "--cacert=" + c.ca}, io.Discard, &errs)
		if code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: got exit code %d, want %d: %s", c.url, code, c.code, errs.String())
		}
	}
}
