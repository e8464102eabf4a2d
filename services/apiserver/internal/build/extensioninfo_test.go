package build

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestExtensionAuthenticationConfigMapIsRepaired checks that the ConfigMap is repaired after any change, and
// follows the CA files.
func TestExtensionAuthenticationConfigMapIsRepaired(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "front-proxy-ca.crt")
	first, _ := clientPair(t)
	if err := os.WriteFile(file, first, 0o600); err != nil {
		t.Fatal(err)
	}
	api := startServer(t, func(options *config.Options) {
		p := &options.Authentication.Proxy
		p.CAFile = file
		p.Names = []string{"front-proxy-client"}
		p.Headers.Username = []string{"X-Remote-User"}
		p.Headers.UID = []string{"X-Remote-Uid"}
		p.Headers.Group = []string{"X-Remote-Group"}
		p.Headers.ExtraPrefix = []string{"X-Remote-Extra-"}
	})
	const at = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
	data := func() map[string]any {
		configMapData, _ := api.get(at).field("data").(map[string]any)
		return configMapData
	}
	api.waitUntil("published", func() bool { return len(data()) == 7 })
	configMapData := data()
	for key, want := range map[string]string{
		"requestheader-client-ca-file":       string(first),
		"requestheader-allowed-names":        `["front-proxy-client"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-uid-headers":          `["X-Remote-Uid"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	} {
		if configMapData[key] != want {
			t.Errorf("%s: got %q, want %v", key, configMapData[key], want)
		}
	}
	if ca, _ := configMapData["client-ca-file"].(string); !strings.HasPrefix(ca, "-----BEGIN CERTIFICATE-----") {
		t.Errorf("got client-ca-file %q, want a PEM certificate", ca)
	}

	before := api.get(at).resourceVersion()
	patch := func(data map[string]any) {
		t.Helper()
		b, _ := json.Marshal(map[string]any{"data": data})
		api.mustSend(200, "PATCH", at, string(b), "Content-Type", mergePatch)
	}
	// Additional CAs stay; invalid and missing data is repaired.
	patch(map[string]any{
		"requestheader-allowed-names":    `["theirs"]`,
		"requestheader-group-headers":    "nonsense",
		"requestheader-client-ca-file":   "nonsense",
		"requestheader-username-headers": nil,
		"client-ca-file":                 string(first),
		"more":                           "x",
	})
	api.waitUntil("mended", func() bool {
		configMapData := data()
		clients, _ := configMapData["client-ca-file"].(string)
		return configMapData["requestheader-allowed-names"] == `["theirs","front-proxy-client"]` &&
			configMapData["requestheader-group-headers"] == `["X-Remote-Group"]` &&
			configMapData["requestheader-client-ca-file"] == string(first) &&
			configMapData["requestheader-username-headers"] == `["X-Remote-User"]` &&
			configMapData["more"] == "x" &&
			strings.Count(clients, "BEGIN CERTIFICATE") == 2
	})
	if api.get(at).resourceVersion() == before {
		t.Error("got an unchanged ConfigMap, want it written")
	}

	second, _ := clientPair(t)
	if err := os.WriteFile(file, second, 0o600); err != nil {
		t.Fatal(err)
	}
	api.waitUntil("both authorities", func() bool { return data()["requestheader-client-ca-file"] == string(first)+string(second) })
	if err := os.WriteFile(file, append(second, first...), 0o600); err != nil {
		t.Fatal(err)
	}
	api.mustSend(200, "DELETE", at, "")
	api.waitUntil("repaired", func() bool { return data()["requestheader-client-ca-file"] == string(second)+string(first) })
}

// TestDamagedCAFileKeepsPublishedCAs checks that the published CAs are those in use.
func TestDamagedCAFileKeepsPublishedCAs(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const at = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
	for name, damage := range map[string]func(file string, good []byte) error{
		"half":  func(file string, good []byte) error { return os.WriteFile(file, good[:len(good)/2], 0o600) },
		"empty": func(file string, _ []byte) error { return os.WriteFile(file, nil, 0o600) },
		"gone":  func(file string, _ []byte) error { return os.Remove(file) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var file string
			api := startServer(t, func(options *config.Options) { file = options.Serving.ClientCAFile })
			published := func() any {
				data, _ := api.get(at).field("data").(map[string]any)
				return data["client-ca-file"]
			}
			good, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			api.waitUntil("published", func() bool { return published() == string(good) })
			if err := damage(file, good); err != nil {
				t.Fatal(err)
			}
			api.mustSend(200, "DELETE", at, "")
			api.waitUntil("published again", func() bool { return api.get(at).code == 200 })
			if got := published(); got != string(good) {
				t.Errorf("got published CA %q, want the valid one", got)
			}
		})
	}
}

// TestListedPathsAreServed requests every path of the root document, including each health check.
func TestListedPathsAreServed(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := sharedServer(t)
	listed := map[string]bool{}
	for _, p := range api.get("/").field("paths").([]any) {
		path := p.(string)
		listed[path] = true
		want := 200
		if path == "/openapi/v3/" {
			want = 404 // as in kube-apiserver: the prefix of documents
		}
		if code := api.get(path).code; code != want {
			t.Errorf("%s: got code %d, want %d", path, code, want)
		}
	}
	for _, path := range []string{
		"/openapi/v3/", "/healthz/ping", "/livez/ping", "/readyz/ping", "/readyz/etcd-readiness",
		"/readyz/informer-sync", "/readyz/shutdown",
	} {
		if !listed[path] {
			t.Errorf("got no path %s, want it listed", path)
		}
	}
	for _, path := range []string{"/livez/informer-sync", "/livez/shutdown"} {
		if listed[path] {
			t.Errorf("got path %s listed, want the check in /readyz only", path)
		}
	}
}
