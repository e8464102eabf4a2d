package tokenwebhook_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/security/authn/tokenwebhook"
)

// plugin is a credential plugin that counts its calls. Each call returns another token.
const plugin = `#!/bin/sh
n=$(($(cat "$COUNT" 2>/dev/null || echo 0) + 1))
echo $n > "$COUNT"
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"by-plugin-%s"}}' $n
`

// TestCredentialPluginIsCalledAgainAfter401 checks that the client authenticates with the token of the plugin, and calls
// the plugin again when the service rejects it.
func TestCredentialPluginIsCalledAgainAfter401(t *testing.T) {
	var valid atomic.Value
	valid.Store("Bearer by-plugin-1")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != valid.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, reviewJSON("v1", `{"authenticated":true,"user":{"username":"alice"}}`))
	}))
	defer server.Close()
	dir := t.TempDir()
	files := map[string]string{
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
		"plugin": plugin,
		"config": fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":"ca.crt"}}],
"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"./plugin","interactiveMode":"Never","env":[{"name":"COUNT","value":%q}]}}}],
"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`, server.URL, filepath.Join(dir, "count")),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	client, err := tokenwebhook.New(tokenwebhook.Config{
		Kubeconfig: filepath.Join(dir, "config"),
		Version:    "v1",
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	calls := func() string {
		n, err := os.ReadFile(filepath.Join(dir, "count"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(n))
	}
	for range 3 {
		if r, ok, err := client.AuthenticateToken(t.Context(), secret, nil); !ok || r.User.Name != "alice" {
			t.Fatalf("got %v, %v; want true, \"alice\"", ok, err)
		}
	}
	if calls() != "1" {
		t.Errorf("got %s calls of the plugin, want \"1\"", calls())
	}
	valid.Store("Bearer by-plugin-2")
	if _, ok, err := client.AuthenticateToken(t.Context(), secret, nil); !ok {
		t.Errorf("after the credential expired: got %v, want success", err)
	}
	if calls() != "2" {
		t.Errorf("got %s calls of the plugin, want \"2\"", calls())
	}
	valid.Store("nothing")
	if _, ok, err := client.AuthenticateToken(t.Context(), secret, nil); ok || err == nil || strings.Contains(err.Error(), "by-plugin") {
		t.Errorf("with invalid credentials: got %v, %v; want false, an error, text without \"by-plugin\"", ok, err)
	}
}
