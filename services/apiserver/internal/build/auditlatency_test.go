package build

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/config"
)

// auditEvent holds the tested fields of an audit event.
type auditEvent struct {
	AuditID, Stage, Verb, RequestURI string
	User                             struct{ Username string }
	ObjectRef                        *struct{ Resource, Namespace, Name, APIGroup string }
	ResponseStatus                   *struct{ Code int }
	RequestObject, ResponseObject    json.RawMessage
	Annotations                      map[string]string
}

// startAuditingAll starts a server that audits all requests at the highest level.
func startAuditingAll(t *testing.T, change func(*config.Options)) (*testServer, func(id string) []auditEvent) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "audit.log")
	api := startServer(t, func(options *config.Options) {
		options.Audit.PolicyFile = filepath.Join(t.TempDir(), "policy.yaml")
		options.Audit.Log.Path = log
		replaceFile(t, options.Audit.PolicyFile, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n")
		if change != nil {
			change(options)
		}
	})
	return api, func(id string) (out []auditEvent) {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(data), "\n") {
			var e auditEvent
			if json.Unmarshal([]byte(line), &e) == nil && e.AuditID == id {
				out = append(out, e)
			}
		}
		return out
	}
}

// TestLatencyIsAudited checks that events of slow requests have the latency annotations of
// Kubernetes.
func TestLatencyIsAudited(t *testing.T) {
	t.Parallel()
	api, audited := startAuditingAll(t, func(options *config.Options) { options.Audit.LatencyThreshold = time.Nanosecond })
	api.mustSend(201, "POST", configMaps, configMap("c"), "Audit-Id", "create")
	api.mustSend(200, "GET", configMaps+"/c", "", "Audit-Id", "get")
	api.mustSend(200, "GET", configMaps, "", "Audit-Id", "list")
	api.mustSend(200, "PATCH", configMaps+"/c", `{"data":{"a":"b"}}`, "Content-Type", mergePatch, "Audit-Id", "patch")
	for auditID, parts := range map[string]string{
		"create": "total authentication authorization apf-queue-wait etcd serialize-response-object response-write",
		"get":    "total authentication authorization apf-queue-wait etcd serialize-response-object response-write",
		"list":   "total authentication authorization apf-queue-wait etcd serialize-response-object response-write",
		"patch":  "total authentication authorization apf-queue-wait etcd decode-response-object serialize-response-object response-write",
	} {
		api.waitUntil("audited: "+auditID, func() bool { e := audited(auditID); return len(e) > 0 && e[len(e)-1].Stage == "ResponseComplete" })
		events := audited(auditID)
		got := events[len(events)-1].Annotations
		want := map[string]bool{}
		for _, part := range strings.Fields(parts) {
			want["apiserver.latency.k8s.io/"+part] = true
			if _, err := time.ParseDuration(got["apiserver.latency.k8s.io/"+part]); err != nil {
				t.Errorf("%s: got annotations %v, want a duration of %s", auditID, got, part)
			}
		}
		for key := range got {
			if strings.HasPrefix(key, "apiserver.latency.k8s.io/") && !want[key] {
				t.Errorf("%s: got latency annotation %s, want only %v", auditID, key, want)
			}
		}
	}
}

// TestProxiedRequestsAreAudited checks that requests for extension servers are audited without
// objects, under the ID that the extension server sees.
func TestProxiedRequestsAreAudited(t *testing.T) {
	t.Parallel()
	api, audited := startAuditingAll(t, nil)
	extension := startExtension(t, api)
	api.waitUntil("available", func() bool { return api.availableCondition() == "True Passed all checks passed" })
	const path = "/apis/ext.test/v1/namespaces/n/things"
	for _, test := range []struct {
		id, method, path, body, verb, name string
		code                               int
	}{
		{id: "list", method: "GET", path: path, verb: "list", code: 200},
		{id: "get", method: "GET", path: path + "/t", verb: "get", name: "t", code: 200},
		{
			id:     "create",
			method: "POST",
			path:   path,
			body:   `{"apiVersion":"ext.test/v1","kind":"Thing","metadata":{"name":"t"}}`,
			verb:   "create",
			code:   200,
		},
		{id: "patch", method: "PATCH", path: path + "/t", body: `{}`, verb: "patch", name: "t", code: 200},
		{id: "delete", method: "DELETE", path: path + "/t", verb: "delete", name: "t", code: 200},
	} {
		api.mustSend(test.code, test.method, test.path, test.body, "Audit-Id", test.id)
		if seen := extension.lastRequest(); seen.Header.Get("Audit-Id") != test.id {
			t.Errorf("extension server received Audit-Id %q, want %q", seen.Header.Get("Audit-Id"), test.id)
		}
		api.waitUntil("audited: "+test.id, func() bool { return len(audited(test.id)) == 2 })
		events := audited(test.id)
		if got := fmt.Sprint(events[0].Stage, " ", events[1].Stage); got != "RequestReceived ResponseComplete" {
			t.Errorf("%s: got stages %s, want RequestReceived and ResponseComplete", test.id, got)
		}
		if got := events[1].ResponseStatus; got == nil || got.Code != test.code {
			t.Errorf("%s: got response status %+v, want code %d", test.id, got, test.code)
		}
		for _, got := range events {
			request := fmt.Sprint(got.User.Username, " ", got.Verb, " ", got.RequestURI)
			if want := fmt.Sprint("admin ", test.verb, " ", test.path); request != want {
				t.Errorf("%s: got request %q, want %q", test.id, request, want)
			}
			if got.RequestObject != nil || got.ResponseObject != nil {
				t.Errorf("%s: got objects %v and %v, want none", test.id, got.RequestObject, got.ResponseObject)
			}
			if got.ObjectRef == nil {
				t.Errorf("%s: got event %+v, want one with an object reference", test.id, got)
				continue
			}
			ref := fmt.Sprint(got.ObjectRef.APIGroup, "/", got.ObjectRef.Resource, "/", got.ObjectRef.Namespace, "/", got.ObjectRef.Name)
			if want := "ext.test/things/n/" + test.name; ref != want {
				t.Errorf("%s: got object reference %q, want %q", test.id, ref, want)
			}
		}
	}
	extension.Close()
	api.waitUntil("gone", func() bool { return api.send("GET", path, "", "Audit-Id", "gone").code == 503 })
	api.waitUntil("audited", func() bool { return len(audited("gone")) > 1 })
	events := audited("gone")
	if events[len(events)-1].ResponseStatus.Code != 503 && events[len(events)-1].ResponseStatus.Code != 200 {
		t.Errorf("got events %+v, want the last with status 503 or 200", events)
	}
}
