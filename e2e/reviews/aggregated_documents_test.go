package reviews

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRequestsAndDocumentsOfRegistration replays the requests that the API server sends unasked to
// an extension server, and the documents that it builds from the responses.
func TestRequestsAndDocumentsOfRegistration(t *testing.T) {
	aggregation := newAggregation(t, proxied)
	name := ""
	for _, exchange := range loadExchanges(t, "1-registration.json") {
		t.Run(exchange.Name, func(t *testing.T) {
			var diff []string
			switch {
			case exchange.Client == nil:
				return
			case exchange.Client.Method == "POST":
				aggregation.ext.Play(aggregation.ownResponses, exchange.Within4...)
				if name != "" {
					aggregation.deleteAPIService(name)
				}
				name, diff = aggregation.createAPIService(exchange.Client, exchange.Status)
			default:
				if strings.HasPrefix(exchange.Name, "after the APIService is deleted") {
					aggregation.deleteAPIService(name)
				}
				deadline := time.Now().Add(10 * time.Second)
				for diff = aggregation.diffDocument(exchange); len(diff) > 0 && time.Now().Before(deadline); diff = aggregation.diffDocument(exchange) {
					time.Sleep(20 * time.Millisecond) // polling interval
				}
			}
			for _, d := range diff {
				t.Error(d)
			}
			if exchange.Within4 != nil {
				t.Cleanup(func() { aggregation.checkOwnRequests(t, exchange.Within4) })
			}
		})
	}
}

// checkOwnRequests compares the requests that the API server sent unasked with the recorded
// requests for the same path and user.
func (a *aggregation) checkOwnRequests(t *testing.T, recorded []ProxiedCall) {
	wanted := map[string][]ProxiedCall{}
	for _, proxiedCall := range recorded {
		wanted[proxiedCall.String()] = append(wanted[proxiedCall.String()], proxiedCall)
	}
	for _, proxiedCall := range a.ext.Calls() {
		all, ok := wanted[proxiedCall.String()]
		if !ok {
			continue // a client's request
		}
		var diff []string
		for i := range all { // one of them must be equal
			diff = a.diffValues(proxiedCall.String(), all[i].comparedParts(), proxiedCall.comparedParts())
			if len(diff) == 0 {
				break
			}
		}
		for _, d := range diff {
			t.Error(d)
		}
	}
}

// diffDocument returns the differences of a discovery or OpenAPI document, in the parts that belong
// to the group of the extension server.
func (a *aggregation) diffDocument(exchange *AggregatedExchange) []string {
	var want struct {
		Status int `json:"status"`
		Type   any `json:"contentType"`
		Body   any `json:"body"`
	}
	if err := json.Unmarshal(exchange.Response, &want); err != nil {
		return []string{err.Error()}
	}
	status, headers, body := a.sendAsRecorder(exchange.Client, false)
	if status != want.Status {
		return []string{fmt.Sprintf("want %d, got %d %.300s", want.Status, status, jsonText(body))}
	}
	if t, _ := want.Type.(string); t != headers.Get("Content-Type") {
		return []string{fmt.Sprintf("want %q, got %q", t, headers.Get("Content-Type"))}
	}
	if recorded, ok := want.Body.(map[string]any); ok {
		if got, ok := body.(map[string]any); ok {
			want.Body, body = reduceToGroup(exchange.Client.Path, recorded, got)
		}
	}
	return a.diffValues("body", want.Body, body)
}

// reduceToGroup reduces the recorded and the received document at path to the entries of the group
// of the extension server.
func reduceToGroup(path string, want, got map[string]any) (any, any) {
	ofGroup := func(v any, name func(map[string]any) any) (out []any) {
		out = []any{}
		all, _ := v.([]any)
		for _, g := range all {
			if name(g.(map[string]any)) == "ext.test" {
				out = append(out, g)
			}
		}
		return out
	}
	switch {
	case got["groups"] != nil:
		return want["group"], ofGroup(got["groups"], func(g map[string]any) any { return g["name"] })
	case got["items"] != nil && got["kind"] == "APIGroupDiscoveryList":
		return want["group"], ofGroup(got["items"], func(g map[string]any) any { return g["metadata"].(map[string]any)["name"] })
	case path == "/openapi/v3" || path == "/openapi/v2":
		reduced := map[string]any{"paths": map[string]any{}}
		for p, v := range got["paths"].(map[string]any) {
			if strings.Contains(p, "ext.test") || strings.Contains(p, "other.test") {
				reduced["paths"].(map[string]any)[p] = v
			}
		}
		if definitions, ok := got["definitions"].(map[string]any); ok {
			reduced["definitions"] = map[string]any{}
			for name, v := range definitions {
				if strings.HasPrefix(name, "test.ext") || strings.HasSuffix(name, "ObjectMeta_v2") {
					reduced["definitions"].(map[string]any)[name] = v
				}
			}
			delete(want, "info") // contains the version
		}
		return want, reduced
	}
	return want, got
}
