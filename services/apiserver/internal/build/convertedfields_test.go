package build

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestFieldSelectorsUseRequestedVersion selects by a field that exists only in the requested
// version, because a webhook computes it from a field of the stored version.
func TestFieldSelectorsUseRequestedVersion(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	converters := newConverters(t)
	converters.convert = func(o map[string]any) {
		if strings.HasSuffix(fmt.Sprint(o["apiVersion"]), "/v2") {
			o["host"], _, _ = strings.Cut(fmt.Sprint(o["hostPort"]), ":")
			delete(o, "hostPort")
			return
		}
		o["hostPort"] = fmt.Sprint(o["host"], ":80")
		delete(o, "host")
	}

	// 1. The stored version v1 has the field hostPort. Only v2 has the selectable field host.
	api.mustSend(201, "POST", definitionsPath,
		fmt.Sprintf(`{"metadata":{"name":"hosts.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"hosts","kind":"Host"},"versions":[
		{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"hostPort":{"type":"string"}}}}},
		{"name":"v2","served":true,"storage":false,"selectableFields":[{"jsonPath":".host"}],"schema":{"openAPIV3Schema":{"type":"object","properties":{"host":{"type":"string"}}}}}],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}}}}}`, converters.URL, converters.ca()))
	const v1, v2 = "/apis/example.com/v1/namespaces/default/hosts", "/apis/example.com/v2/namespaces/default/hosts"
	for name, host := range map[string]string{"a": "host1", "b": "host2", "c": "host1", "d": "host1"} {
		api.mustSend(201, "POST", v1, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Host","metadata":{"name":%q},"hostPort":"%s:80"}`,
			name, host))
	}
	names := func(list apiResponse, key string) string {
		var all []string
		items, _ := list.field(key).([]any)
		for _, item := range items {
			o := item.(map[string]any)
			if inner, ok := o["object"].(map[string]any); ok {
				o = inner
			}
			all = append(all, o["metadata"].(map[string]any)["name"].(string))
		}
		return strings.Join(all, " ")
	}

	// 2. Lists in all forms, and in pages, select by the field of v2.
	const selected = v2 + "?fieldSelector=host%3Dhost1"
	for _, form := range []struct{ accept, key string }{
		{accept: "application/json", key: "items"},
		{accept: "application/json;as=Table;g=meta.k8s.io;v=v1", key: "rows"},
		{accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", key: "items"},
	} {
		if response := names(api.mustSend(200, "GET", selected, "", "Accept", form.accept), form.key); response != "a c d" {
			t.Errorf("%s: got %q, want %q", form.accept, response, "a c d")
		}
	}
	first := api.mustSend(200, "GET", selected+"&limit=2", "")
	rest := api.mustSend(200, "GET", selected+"&limit=2&continue="+fmt.Sprint(first.field("metadata", "continue")), "")
	if got := names(first, "items") + ", " + names(rest, "items"); got != "a c, d" {
		t.Errorf("got pages %q, want %q", got, "a c, d")
	}
	if response := names(api.mustSend(200, "GET", v2+"?fieldSelector=host!%3Dhost1,metadata.name%3Db", ""), "items"); response != "b" {
		t.Errorf("selected by host and name: got %q, want b", response)
	}

	// 3. A watch reports objects that start or cease to match.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET",
		api.url+selected+"&watch=1&resourceVersion="+fmt.Sprint(rest.field("metadata", "resourceVersion")), nil)
	if err != nil {
		t.Fatal(err)
	}
	httpResponse, err := api.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer httpResponse.Body.Close()
	const merge = "application/merge-patch+json"
	api.mustSend(200, "PATCH", v1+"/b", `{"metadata":{"labels":{"x":"y"}}}`, "Content-Type", merge)
	api.mustSend(200, "PATCH", v1+"/b", `{"hostPort":"host1:90"}`, "Content-Type", merge)
	api.mustSend(200, "PATCH", v1+"/a", `{"metadata":{"labels":{"x":"y"}}}`, "Content-Type", merge)
	api.mustSend(200, "PATCH", v1+"/c", `{"hostPort":"host2:90"}`, "Content-Type", merge)
	api.mustSend(200, "DELETE", v1+"/c", "")
	api.mustSend(200, "DELETE", selected, "")
	var events []string
	for lines := bufio.NewScanner(httpResponse.Body); len(events) < 6 && lines.Scan(); {
		var event struct {
			Type   string
			Object struct {
				Host     string
				Metadata struct{ Name string }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		events = append(events, event.Type+" "+event.Object.Metadata.Name+" "+event.Object.Host)
	}
	want := "ADDED b host1, MODIFIED a host1, DELETED c host1, DELETED a host1, DELETED b host1, DELETED d host1"
	if got := strings.Join(events, ", "); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	if response := names(api.mustSend(200, "GET", v2, ""), "items"); response != "" {
		t.Errorf("after the collection was deleted: got %q, want no objects", response)
	}
}
