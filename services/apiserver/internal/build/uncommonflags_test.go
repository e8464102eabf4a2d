package build

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestUncommonFlagsTakeEffect checks the effect of flags that are rarely set.
func TestUncommonFlagsTakeEffect(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "debug")
	api := startServer(t, func(options *config.Options) {
		options.Authorization.Modes = []string{"RBAC"}
		options.Debug.LogFiles = true
		options.Debug.Socket = socket
		options.ExternalHostname = "api.example.com"
		options.Services.EndpointReconciler = config.ReconcileNone
		options.Requests.GarbageCollector = false
		options.Requests.DeleteCollectionWorkers = 4
	})
	address := fmt.Sprintf(`"serverAddress":"api.example.com:%d"`, api.server.base.port)
	if response := api.get("/api"); !strings.Contains(string(response.body), address) {
		t.Errorf("got %s, want it to contain %s", response.body, address)
	}
	api.mustSend(200, "GET", "/logs/", "")
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer anonymous.CloseIdleConnections()
	if r, err := anonymous.Get(api.url + "/logs/"); err != nil || r.StatusCode != http.StatusForbidden {
		t.Errorf("got %v %v, want no error and %v", r, err, http.StatusForbidden)
	} else {
		r.Body.Close()
	}
	api.mustSend(404, "GET", "/api/v1/namespaces/default/endpoints/kubernetes", "")

	local := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer local.CloseIdleConnections()
	for path, want := range map[string]int{"/debug/pprof/heap": 200, "/api/v1/secrets": 404, "/metrics": 404} {
		r, err := local.Get("http://debug" + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, r.StatusCode, want)
		}
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info, err)
	}

	for i := range 20 {
		api.mustSend(201, "POST", configMaps, configMap(fmt.Sprint("c", i), "k", "v"))
	}
	api.mustSend(200, "DELETE", configMaps, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`)
	if response := api.get(configMaps); strings.Contains(string(response.body), `"name":"c`) {
		t.Errorf("without garbage collector: got %s, want the object deleted at once", response.body)
	}
}
