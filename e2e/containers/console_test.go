package containers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"binnacle/e2e/harness"
)

// checkConsole starts the console. It must show every replica to clients that may read metrics, and
// nothing to others.
func checkConsole(t *testing.T, c *composition) {
	requireForm(t, more)
	c.mustCompose("up", "--console", fmt.Sprintf("--console-port=%d", harness.FreePort(t)))
	state := func(pair string) (code int, body []byte) {
		t.Helper()
		config := c.clientConfig("console", pair)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		resp, err := client.Get("https://console:6448/state")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err = io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body
	}
	for pair, want := range map[string]int{
		"admin/admin":                      200,
		"monitoring/monitoring":            200,
		"":                                 401,
		"tokencleaner/tokencleaner-client": 403,
		"etcd/etcd":                        401,
	} {
		if code, body := state(pair); code != want {
			t.Errorf("pair %q: got %d, want %d: %s", pair, code, want, body)
		}
	}
	harness.Eventually(t, waitTimeout, "the console to show all replicas", func() error {
		code, body := state("admin/admin")
		var shown struct {
			Replicas []struct {
				Service string
				Ready   bool
			}
		}
		if err := json.Unmarshal(body, &shown); err != nil || code != http.StatusOK {
			return fmt.Errorf("%d: %w", code, err)
		}
		ready := map[string]int{}
		for _, r := range shown.Replicas {
			if r.Ready {
				ready[r.Service]++
			}
		}
		for _, s := range suiteServices() {
			if s != consoleService && ready[s] != 2 {
				return fmt.Errorf("ready replicas: %v, want 2 of each service", ready)
			}
		}
		return nil
	})
}
