package build

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

const (
	flowSchemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
	flowLevels  = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
)

// createFlow creates a priority level with few seats, and a flow schema for a user.
func (api *testServer) createFlow(user, level, response string, shares int) {
	api.t.Helper()
	api.mustSend(201, "POST", flowLevels,
		fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":%d,"borrowingLimitPercent":0,"limitResponse":%s}}}`,
			level, shares, response))
	api.mustSend(201, "POST", flowSchemas,
		fmt.Sprintf(`{"metadata":{"name":"of-%s"},"spec":{"matchingPrecedence":2,"priorityLevelConfiguration":{"name":%q},"rules":[{
		"subjects":[{"kind":"User","user":{"name":%q}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}],
		"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`, user, level, user))
}

// TestPriorityLevelLimitsClient checks that a new priority level applies soon, and that its
// requests have no more than its seats. Health checks need no seats, although the level precedes
// that of probes.
func TestPriorityLevelLimitsClient(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	api.createFlow("alice", "tiny", `{"type":"Reject"}`, 0) // one seat
	uid := func(path string) any { return api.get(path).field("metadata", "uid") }
	var first apiResponse
	api.waitUntil("the schema counts", func() bool {
		first = api.get(configMaps, asUser("alice")...)
		return first.header.Get("X-Kubernetes-Pf-Flowschema-Uid") == uid(flowSchemas+"/of-alice")
	})
	got, want := first.header.Get("X-Kubernetes-Pf-Flowschema-Uid"), uid(flowSchemas+"/of-alice")
	if first.code != 200 || got != want {
		t.Errorf("%d, by schema %q, want %v", first.code, got, want)
	}
	if got, want := first.header.Get("X-Kubernetes-Pf-Prioritylevel-Uid"), uid(flowLevels+"/tiny"); got != want {
		t.Errorf("level %q, want %v", got, want)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range 8 {
		wg.Go(func() {
			for range 10 {
				// A list of a future version blocks until its timeout.
				response := api.get(configMaps+"?resourceVersion=999999999&timeout=200ms", asUser("alice")...)
				mu.Lock()
				codes[response.code]++
				if response.code == http.StatusTooManyRequests &&
					(string(response.body) != "Too many requests, please try again later.\n" || response.header.Get("Retry-After") == "") {
					t.Errorf("got rejection %q with Retry-After %q, want %q and a Retry-After",
						response.body, response.header.Get("Retry-After"), "Too many requests, please try again later.\n")
				}
				mu.Unlock()
				if h := api.get("/livez", asUser("alice")...); h.code != 200 {
					t.Errorf("/livez: got status %d, want 200", h.code)
				}
				if other := api.get(configMaps, asUser("bob")...); other.code != 200 {
					t.Errorf("another user: got status %d: %s, want 200", other.code, other.body)
				}
			}
		})
	}
	wg.Wait()
	if codes[http.StatusTooManyRequests] == 0 || codes[http.StatusGatewayTimeout] == 0 || len(codes) != 2 {
		t.Errorf("got responses by status %v, want only 429 and 504, and both", codes)
	}
	api.mustSend(200, "DELETE", flowSchemas+"/of-alice", "")
	api.waitUntil("a schema that was deleted does not count", func() bool {
		return api.get(configMaps, asUser("alice")...).header.Get("X-Kubernetes-Pf-Flowschema-Uid") != first.header.Get("X-Kubernetes-Pf-Flowschema-Uid")
	})
}

// TestWatchReleasesSeatsAfterInitialState checks that a watch holds its seats until it has sent the
// initial objects.
func TestWatchReleasesSeatsAfterInitialState(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(201, "POST", configMaps, configMap("a"))
	api.createFlow("alice", "tiny", `{"type":"Reject"}`, 0)
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), "GET", api.url+configMaps+"?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Impersonate-User", "alice")
		httpResponse, err := api.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer httpResponse.Body.Close()
		if httpResponse.StatusCode != 200 {
			t.Fatalf("watch: got status %d, want 200", httpResponse.StatusCode)
		}
		if _, err := httpResponse.Body.Read(make([]byte, 1)); err != nil { // the initial objects
			t.Fatal(err)
		}
		api.waitUntil("a free seat", func() bool { return api.get(configMaps, asUser("alice")...).code == 200 })
	}
}

// TestDebugPagesShowFlowControl checks the tables of priority levels, queues and requests.
func TestDebugPagesShowFlowControl(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	const path = "/debug/api_priority_and_fairness/"
	if response := api.get(path + "dump_priority_levels"); response.code != 200 ||
		!strings.HasPrefix(string(response.body), "PriorityLevelName, ActiveQueues, IsIdle,") ||
		!strings.Contains(string(response.body), "\nexempt,") {
		t.Errorf("dump_priority_levels: got status %d: %s, want 200 and a table with the level exempt", response.code, response.body)
	}
	if response := api.get(path + "dump_queues"); response.code != 200 || !strings.HasPrefix(string(response.body), "PriorityLevelName,") {
		t.Errorf("dump_queues: got status %d: %s, want 200 and a table", response.code, response.body)
	}
	if response := api.get(path + "dump_requests?includeRequestDetails=1"); response.code != 200 ||
		!strings.Contains(string(response.body), path+"dump_requests,") {
		t.Errorf("dump_requests: got status %d: %s, want 200 and this request in the table", response.code, response.body)
	}
	if response := api.get(path + "dump_nothing"); response.code != 404 {
		t.Errorf("unknown dump: got status %d, want 404", response.code)
	}
	off := startServer(t, func(options *config.Options) { options.Requests.PriorityAndFairness = false })
	if response := off.get(path + "dump_queues"); response.code != 404 {
		t.Errorf("priority and fairness disabled: got status %d, want 404", response.code)
	}
}

// TestFlowSchemaChangeIsIncremental checks that the cost of a change does not grow with the number
// of schemas.
func TestFlowSchemaChangeIsIncremental(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.createFlow("alice", "tiny", `{"type":"Reject"}`, 0)
	const mine = flowSchemas + "/of-alice"
	api.waitUntil("the status was set", func() bool { return api.get(mine).field("status", "conditions") != nil })
	f := api.server.security.flow
	made := map[string]int{}
	f.OnChange(func(name string) { made[name]++ })
	for i := range 3 {
		api.mustSend(200, "PATCH", mine, fmt.Sprintf(`{"spec":{"matchingPrecedence":%d}}`, 60+i),
			"Content-Type", "application/merge-patch+json")
	}
	f.OnChange(func(string) {})
	if made["of-alice"] == 0 || len(made) != 1 {
		t.Errorf("got recompiled schemas %v, want only of-alice", made)
	}
}

// TestRequestsContinueDuringFlowUpdate checks that requests use the previous configuration during
// an update, and that the change applies once its request has completed.
func TestRequestsContinueDuringFlowUpdate(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	judge := func() string {
		return api.get(configMaps, asUser("alice")...).header.Get("X-Kubernetes-Pf-Flowschema-Uid")
	}
	before := judge()
	f := api.server.security.flow
	api.mustSend(201, "POST", flowLevels,
		`{"metadata":{"name":"wide"},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}}`)
	making := make(chan struct{})
	goOn := make(chan struct{})
	var once sync.Once
	f.OnChange(func(name string) {
		if name == "of-alice" {
			once.Do(func() { close(making); <-goOn })
		}
	})
	made := make(chan apiResponse)
	go func() {
		made <- api.send("POST", flowSchemas,
			`{"metadata":{"name":"of-alice"},"spec":{"matchingPrecedence":50,"priorityLevelConfiguration":{"name":"wide"},"rules":[{
		"subjects":[{"kind":"User","user":{"name":"alice"}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}]}]}}`)
	}()
	<-making
	if got := judge(); got != before {
		t.Errorf("before the create: got schema %q, want %q", got, before)
	}
	close(goOn)
	if r := <-made; r.code != 201 || judge() != r.field("metadata", "uid") {
		t.Errorf("create: got status %d: %s, schema in force %q, want 201 and the new schema in force", r.code, r.body, judge())
	}
}
