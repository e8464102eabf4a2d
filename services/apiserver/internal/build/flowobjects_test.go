package build

import (
	"strings"
	"testing"
)

// TestFlowObjectsExistFromStart checks that flow schemas and priority levels exist from the start, and that their
// statuses are updated.
func TestFlowObjectsExistFromStart(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	const group = "/apis/flowcontrol.apiserver.k8s.io/v1"
	for resource, want := range map[string]int{"flowschemas": 13, "prioritylevelconfigurations": 8} {
		items, _ := api.get(group + "/" + resource).field("items").([]any)
		if len(items) != want {
			t.Errorf("%d %s, want %d", len(items), resource, want)
		}
	}
	dangling := func(schema string) string {
		conditions, _ := api.get(group+"/flowschemas/"+schema).field("status", "conditions").([]any)
		if len(conditions) != 1 {
			return ""
		}
		c := conditions[0].(map[string]any)
		return c["status"].(string) + " " + c["message"].(string)
	}
	api.waitUntil("the schema probes has its level", func() bool { return strings.HasPrefix(dangling("probes"), "False ") })
	api.mustSend(201, "POST", group+"/flowschemas", `{"metadata":{"name":"own"},"spec":{"priorityLevelConfiguration":{"name":"lost"}}}`)
	api.waitUntil("a level is missed", func() bool {
		return dangling("own") == `True This FlowSchema references the PriorityLevelConfiguration object named "lost" but there is no such object`
	})
	api.mustSend(201, "POST", group+"/prioritylevelconfigurations",
		`{"metadata":{"name":"lost"},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}}`)
	api.waitUntil("it is found", func() bool {
		return dangling("own") == `False This FlowSchema references the PriorityLevelConfiguration object named "lost" and it exists`
	})
}

// TestComponentStatusesAreProbedOnRead checks that components are probed when the statuses are read, in every
// form.
func TestComponentStatusesAreProbedOnRead(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	const path = "/api/v1/componentstatuses"
	names := func(query string) string {
		var out []string
		items, _ := api.get(path + query).field("items").([]any)
		for _, item := range items {
			out = append(out, item.(map[string]any)["metadata"].(map[string]any)["name"].(string))
		}
		return strings.Join(out, " ")
	}
	for query, want := range map[string]string{
		"": "controller-manager etcd-0 scheduler", "?fieldSelector=metadata.name%3Detcd-0": "etcd-0", "?labelSelector=a": "",
	} {
		if got := names(query); got != want {
			t.Errorf("%q lists %q, want %q", query, got, want)
		}
	}
	etcd, _ := api.get(path + "/etcd-0").field("conditions").([]any)
	if len(etcd) != 1 || etcd[0].(map[string]any)["status"] != "True" {
		t.Errorf("etcd-0: got conditions %v, want one with status True", etcd)
	}
	table := api.get(path+"/etcd-0", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if rows, _ := table.field("rows").([]any); len(rows) != 1 || rows[0].(map[string]any)["cells"].([]any)[1] != "Healthy" {
		t.Errorf("table of etcd-0: got %s, want one row with Healthy", table.body)
	}
	if rows, _ := api.get(path, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").field("rows").([]any); len(rows) != 3 {
		t.Errorf("got a table of %d rows, want 3", len(rows))
	}
	if got := api.get(path+"/none").field("details", "kind"); got != "componentstatus" {
		t.Errorf("missing component: got kind %v, want componentstatus", got)
	}
	for _, media := range []string{
		"application/yaml", "application/vnd.kubernetes.protobuf",
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	} {
		api.mustSend(200, "GET", path, "", "Accept", media)
	}
}
