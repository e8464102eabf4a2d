package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"binnacle/e2e/harness"
)

// auditLog holds the events of an audit log, by request ID and by object name.
type auditLog struct {
	received, complete, named map[string]bool
}

// readAuditLog reads the complete lines of an audit log.
func readAuditLog(t *testing.T, file string) auditLog {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	log := auditLog{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for line := range bytes.Lines(data) {
		var test struct {
			AuditID, Stage string
			ObjectRef      struct{ Name string }
		}
		if json.Unmarshal(line, &test) != nil {
			continue // incomplete line of a killed process
		}
		switch test.Stage {
		case "RequestReceived":
			log.received[test.AuditID], log.named[test.ObjectRef.Name] = true, true
		case "ResponseComplete":
			log.complete[test.AuditID] = true
		}
	}
	return log
}

// TestBlockingAuditLogSurvivesKill kills a server with blocking audit logging. The log must contain
// each request with a response and each request that changed an object.
func TestBlockingAuditLogSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	server := harness.StartServer(t, harness.WithFlags("--audit-policy-file="+policy, "--audit-log-path="+file))
	const kills, clients, enough = 3, 8, 150
	var mu sync.Mutex
	responded := map[string]string{} // names of objects by the audit ID of the response
	for round := range kills {
		client, err := rest.HTTPClientFor(server.Config())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		busy := make(chan struct{})
		var all sync.WaitGroup
		count := 0
		for n := range clients {
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					name := fmt.Sprintf("c-%d-%d-%d", round, n, i)
					id, err := applyConfigMap(ctx, client, server.URL, name)
					if err != nil {
						return // the server was killed
					}
					read, err := sendAndReturnAuditID(ctx, client, http.MethodGet,
						server.URL+"/api/v1/namespaces/default/configmaps/"+name, "", "", http.StatusOK)
					mu.Lock()
					responded[id] = name
					if err == nil {
						responded[read] = name
					}
					count++
					if count == enough {
						close(busy)
					}
					mu.Unlock()
				}
			})
		}
		select {
		case <-busy:
		case <-t.Context().Done():
			t.Fatal("got too few responses in time")
		}
		server.Kill()
		cancel()
		all.Wait()
		client.CloseIdleConnections()
		server.Start()
	}
	log := readAuditLog(t, file)
	for id, name := range responded {
		if !log.received[id] || !log.complete[id] {
			t.Errorf("%s: got a response with audit ID %s; logged on receipt: %v, on completion: %v, want both", name,
				id, log.received[id], log.complete[id])
		}
	}
	client, err := rest.HTTPClientFor(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL + "/api/v1/namespaces/default/configmaps")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, o := range list.Items {
		if name := o.Metadata.Name; strings.HasPrefix(name, "c-") {
			changed++
			if !log.named[name] {
				t.Errorf("%s exists, want an event of its creation in the log", name)
			}
		}
	}
	if len(responded) < 2*kills*enough-kills*clients || 2*changed < len(responded) {
		t.Errorf("got %d responses and %d objects, want at least %d responses and half as many objects",
			len(responded), changed, 2*kills*enough-kills*clients)
	}
}

// applyConfigMap applies an object and returns the audit ID of the request.
func applyConfigMap(ctx context.Context, client *http.Client, url, name string) (string, error) {
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"k":"v"}}`
	return sendAndReturnAuditID(ctx, client, http.MethodPatch,
		url+"/api/v1/namespaces/default/configmaps/"+name+"?fieldManager=e2e", "application/apply-patch+yaml", body,
		http.StatusCreated)
}

// sendAndReturnAuditID sends a request, reads the whole response and returns the audit ID.
func sendAndReturnAuditID(ctx context.Context, client *http.Client, method, url, media, body string, code int) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", media)
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode != code {
		return "", fmt.Errorf("%s %s: got %s", method, url, resp.Status)
	}
	return resp.Header.Get("Audit-Id"), nil
}
