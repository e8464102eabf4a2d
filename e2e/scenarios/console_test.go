package scenarios

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// TestConsoleShowsRunningSuite runs the suite from the binary with all services and checks the
// console with HTTP requests and, if available, a browser.
func TestConsoleShowsRunningSuite(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), harness.FreePorts(t, suiteSize)
	suite := harness.NewProcess(t, "binnacle", harness.Binary(t, harness.Everything))
	suite.Start("up", "--dir="+dir, "--port="+strconv.Itoa(port))
	waitForOutput(t, suite, "all services are ready")
	text, err := os.ReadFile(filepath.Join(dir, "console.url"))
	if err != nil {
		t.Fatal(err)
	}
	link := strings.TrimSpace(string(text))
	page, token, ok := strings.Cut(link, "/#token=")
	if !ok {
		t.Fatalf("got link %q, want one with a token", link)
	}
	if strings.Contains(suite.Log(), token) {
		t.Error("the log contains the console's token")
	}
	cli := harness.CLIOf(t, filepath.Join(dir, "kubeconfig"))
	cli.Run(t, "create", "serviceaccount", "stranger", "-n", "default")
	stranger := strings.TrimSpace(cli.Run(t, "create", "token", "stranger", "-n", "default"))
	services := []string{"apiserver", "authn-webhook", "authz-webhook", "bootstrapsigner", "controllers", "tokencleaner"}
	harness.Eventually(t, time.Minute, "all services to be ready", func() error {
		code, state := consoleState(t, page, token)
		var ready []string
		for _, r := range state.Replicas {
			if r.Ready && r.Error == "" {
				ready = append(ready, r.Service)
			}
		}
		if code != http.StatusOK || strings.Join(ready, " ") != strings.Join(services, " ") || len(state.Certificates) == 0 {
			return fmt.Errorf("%d %v", code, ready)
		}
		return nil
	})
	for bearer, want := range map[string]int{"": 401, "wrong": 401, stranger: 403, token: 200} {
		if code, _ := consoleState(t, page, bearer); code != want {
			t.Errorf("token of %d characters: got %d, want %d", len(bearer), code, want)
		}
	}
	// New rejections appear with their reasons.
	if r := cli.Execute(t, "", "get", "secrets", "--as=mallory"); r.Err == nil {
		t.Error("get secrets as mallory: got no error, want one")
	}
	harness.Eventually(t, time.Minute, "the rejection", func() error {
		_, state := consoleState(t, page, token)
		for _, r := range state.Refusals {
			if r.What == "LIST secrets" && strings.HasPrefix(r.Why, "403") {
				return nil
			}
		}
		return fmt.Errorf("got %+v", state.Refusals)
	})
	testBrowser(t, page, link, services)
	if err := suite.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}

// shownState is the checked part of the console's state.
type shownState struct {
	Replicas []struct {
		Service, Error string
		Ready          bool
	}
	Certificates []struct{ Ends time.Time }
	Refusals     []struct{ What, Why string }
}

// consoleState requests the state that the page shows.
func consoleState(t *testing.T, page, token string) (code int, state shownState) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+"/state", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
		t.Errorf("%d: %v", resp.StatusCode, err)
	}
	return resp.StatusCode, state
}

// testBrowser opens the page with and without the token of the link.
func testBrowser(t *testing.T, page, link string, services []string) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Log("no Chromium: skipping the browser test")
		return
	}
	// The browser dumps the page after a fixed time, which may be too short on a busy machine.
	shows := func(url string, parts ...string) {
		t.Helper()
		harness.Eventually(t, time.Minute, "the page in "+browser, func() error {
			cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu",
				"--ignore-certificate-errors",
				"--user-data-dir="+t.TempDir(), "--virtual-time-budget=8000", "--dump-dom", url)
			cmd.WaitDelay = 10 * time.Second
			dom, err := cmd.Output()
			if err != nil {
				return err
			}
			for _, p := range parts {
				if !strings.Contains(string(dom), p) {
					return fmt.Errorf("no %q in\n%s", p, dom)
				}
			}
			return nil
		})
	}
	shows(page+"/", "authentication required: bearer token or client certificate")
	parts := []string{fmt.Sprintf("%d of %d replicas are ready", len(services), len(services)), "publisher",
		"LIST secrets", "up, leader", "user binnacle-admin", "clusterroles.rbac.authorization.k8s.io",
		"requests/s in the last 15 minutes"}
	for _, s := range services {
		parts = append(parts, `<th scope="row">`+s+"</th>")
	}
	shows(link, parts...)
}
