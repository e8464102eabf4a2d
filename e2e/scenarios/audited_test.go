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

// auditLog is what a log says of requests, by their ids, and of objects, by their names.
type auditLog struct {
	received, complete, named map[string]bool
}

func readAuditLog(t *testing.T, file string) auditLog {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	log := auditLog{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for line := range bytes.Lines(data) {
		var e struct {
			AuditID, Stage string
			ObjectRef      struct{ Name string }
		}
		if json.Unmarshal(line, &e) != nil {
			continue // a process was killed while it wrote
		}
		switch e.Stage {
		case "RequestReceived":
			log.received[e.AuditID], log.named[e.ObjectRef.Name] = true, true
		case "ResponseComplete":
			log.complete[e.AuditID] = true
		}
	}
	return log
}

// TestAuditThroughKills: in the mode blocking a server that is killed has told of each
// request that it answered, and of each that changed something.
func TestAuditThroughKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.StartServer(t, harness.WithFlags("--audit-policy-file="+policy, "--audit-log-path="+file))
	const kills, clients, enough = 3, 8, 150
	var mu sync.Mutex
	answered := map[string]string{} // names by ids
	for round := range kills {
		client, err := rest.HTTPClientFor(s.Config())
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
					id, err := applyConfigMap(ctx, client, s.URL, name)
					if err != nil {
						return // it was killed
					}
					read, err := idOf(ctx, client, http.MethodGet, s.URL+"/api/v1/namespaces/default/configmaps/"+name, "", "", http.StatusOK)
					mu.Lock()
					answered[id] = name
					if err == nil {
						answered[read] = name
					}
					if count++; count == enough {
						close(busy)
					}
					mu.Unlock()
				}
			})
		}
		select {
		case <-busy:
		case <-t.Context().Done():
			t.Fatal("nothing was answered in time")
		}
		s.Kill()
		cancel()
		all.Wait()
		client.CloseIdleConnections()
		s.Start()
	}
	log := readAuditLog(t, file)
	for id, name := range answered {
		if !log.received[id] || !log.complete[id] {
			t.Errorf("%s was answered as %s; told when it came: %v, when it was answered: %v", name, id, log.received[id], log.complete[id])
		}
	}
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(s.URL + "/api/v1/namespaces/default/configmaps")
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
			if changed++; !log.named[name] {
				t.Errorf("%s is there, and nobody was told who made it", name)
			}
		}
	}
	if len(answered) < 2*kills*enough-kills*clients || 2*changed < len(answered) {
		t.Errorf("%d requests were answered, %d objects are there", len(answered), changed)
	}
}

// applyConfigMap makes an object and returns the id that the request was told under.
func applyConfigMap(ctx context.Context, client *http.Client, url, name string) (string, error) {
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"k":"v"}}`
	return idOf(ctx, client, http.MethodPatch, url+"/api/v1/namespaces/default/configmaps/"+name+"?fieldManager=e2e", "application/apply-patch+yaml", body, http.StatusCreated)
}

// idOf makes a request, and returns the id that it was told under once it is answered whole.
func idOf(ctx context.Context, client *http.Client, method, url, media, body string, code int) (string, error) {
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
		return "", fmt.Errorf("%s %s was answered %s", method, url, resp.Status)
	}
	return resp.Header.Get("Audit-Id"), nil
}
