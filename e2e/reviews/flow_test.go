package reviews

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// recordedUsers are the users of the recorded classifications, each followed by its groups. A user
// that is not impersonated has a certificate with the same groups.
var recordedUsers = map[string][]string{
	"admin":                                  {"admin", harness.SystemMasters},
	"alice (groups devs, qa)":                {"alice", "devs", "qa"},
	"node":                                   {"system:node:node1", "system:nodes"},
	"kube-controller-manager":                {"system:kube-controller-manager"},
	"kube-scheduler":                         {"system:kube-scheduler"},
	"impersonated system:serviceaccount:a:s": {"system:serviceaccount:a:s"},
	"impersonated system:serviceaccount:kube-system:endpoint-controller":       {"system:serviceaccount:kube-system:endpoint-controller"},
	"impersonated system:serviceaccount:kube-system:other":                     {"system:serviceaccount:kube-system:other"},
	"impersonated system:serviceaccount:kube-system:generic-garbage-collector": {"system:serviceaccount:kube-system:generic-garbage-collector"},
	"impersonated node n9 in system:nodes":                                     {"system:node:n9", "system:nodes"},
	"impersonated user eve by admin":                                           {"eve"},
	"impersonated user in group system:masters":                                {"boss", harness.SystemMasters},
	"impersonated system:kube-controller-manager":                              {"system:kube-controller-manager"},
	"impersonated system:kube-proxy":                                           {"system:kube-proxy"},
	"impersonated system:apiserver":                                            {"system:apiserver"},
}

// TestFlowSchemasMatchRecordings sends the recorded requests as the recorded users and compares the
// flow schema and priority level in the response.
func TestFlowSchemasMatchRecordings(t *testing.T) {
	var recorded struct {
		Rows []struct{ User, Method, Path, FlowSchema, PriorityLevel string }
	}
	if err := loadJSON(filepath.Join("testdata", "flow", "classification.json"), &recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded.Rows) < 200 {
		t.Fatalf("got %d rows, want at least 200", len(recorded.Rows))
	}
	player := newPlayer(t, nil)
	names := map[string]string{"": ""}
	for _, kind := range []string{"flowschemas", "prioritylevelconfigurations"} {
		_, _, list := player.sendRequest(&ClientRequest{Method: "GET", Path: "/apis/flowcontrol.apiserver.k8s.io/v1/" + kind})
		for _, item := range list.(map[string]any)["items"].([]any) {
			meta := item.(map[string]any)["metadata"].(map[string]any)
			names[meta["uid"].(string)] = meta["name"].(string)
		}
	}
	player.mustRequest("POST", "/api/v1/namespaces", `{"metadata":{"name":"a"}}`)
	for _, row := range recorded.Rows {
		player.client = player.clientFor(row.User)
		clientRequest := &ClientRequest{Method: row.Method, Path: row.Path, Body: map[string]any{}, Headers: map[string]string{}}
		switch row.Method {
		case http.MethodGet:
			clientRequest.Body = nil
		case http.MethodPatch:
			clientRequest.Headers["Content-Type"] = "application/merge-patch+json"
		}
		switch names := recordedUsers[row.User]; {
		case strings.HasPrefix(row.User, "impersonated"):
			clientRequest.Headers["Impersonate-User"] = names[0]
			if len(names) > 1 {
				clientRequest.Headers["Impersonate-Group"] = names[1]
			}
		case row.User == "token user in system:masters":
			clientRequest.User = "token:t-admin"
		case row.User == "bad token":
			clientRequest.User = "token:none"
		}
		_, h, _ := player.sendRequest(clientRequest)
		schema, level := names[h.Get("X-Kubernetes-Pf-Flowschema-Uid")], names[h.Get("X-Kubernetes-Pf-Prioritylevel-Uid")]
		if schema != row.FlowSchema || level != row.PriorityLevel {
			t.Errorf("%s %s as %s: got flow schema %q and level %q, want %q and %q", row.Method, row.Path, row.User,
				schema, level, row.FlowSchema, row.PriorityLevel)
		}
	}
}

// clientFor returns a client with the certificate of a recorded user, or of the administrator that
// impersonates it.
func (p *player) clientFor(user string) *http.Client {
	config := &tls.Config{InsecureSkipVerify: true}
	names := recordedUsers[user]
	switch {
	case strings.HasPrefix(user, "impersonated"):
		config.Certificates = []tls.Certificate{Certificate(p.t, p.server.Admin)}
	case names != nil:
		config.Certificates = []tls.Certificate{Certificate(p.t, p.server.PKI.Client(names[0], names[1:]...))}
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}
	p.t.Cleanup(client.CloseIdleConnections)
	return client
}

// TestFlowObjectsMatchRecordings replays exchanges about flow schemas and priority levels:
// validation, defaults, dangling references and repaired mandatory objects. It waits where the
// recorder waited, because the server checks the mandatory objects once a minute.
func TestFlowObjectsMatchRecordings(t *testing.T) {
	t.Parallel()
	player := newPlayer(t, nil)
	player.mustRequest("POST", "/api/v1/namespaces", `{"metadata":{"name":"sat"}}`)
	for _, file := range []string{"validation.json", "repaired.json"} {
		exchanges, err := Load(filepath.Join("testdata", "flow", file))
		if err != nil {
			t.Fatal(err)
		}
		for i, exchange := range exchanges {
			name := fmt.Sprintf("%s %d %s", strings.TrimSuffix(file, ".json"), i+1, exchange.Name)
			diff := player.replayPluginExchange(exchange)
			if strings.Contains(exchange.Name, "s later") {
				for end := time.Now().Add(80 * time.Second); len(diff) > 0 &&
					time.Now().Before(end); diff = player.replayPluginExchange(exchange) {
					time.Sleep(100 * time.Millisecond)
				}
			}
			why := knownDifferences[name]
			switch {
			case why == "" && len(diff) > 0:
				t.Errorf("%s:\n\t%s", name, strings.Join(diff, "\n\t"))
			case why != "" && len(diff) == 0:
				t.Errorf("%s agrees with the recording; remove the known difference: %s", name, why)
			}
		}
	}
}
