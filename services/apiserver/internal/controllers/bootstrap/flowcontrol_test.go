package bootstrap

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// flowServer holds priority levels and flow schemas, and records writes.
type flowServer struct {
	mu     sync.Mutex
	lists  map[string]any
	writes []string
	bodies map[string]string
}

// Do implements internalclient.Doer.
func (f *flowServer) Do(_ context.Context, call internalclient.Call, out any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call.Verb == internalclient.List {
		raw, err := json.Marshal(f.lists[call.Resource])
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, out)
	}
	sent := call.Body
	if call.Delete != nil {
		sent = call.Delete
	}
	body, err := json.Marshal(sent)
	if err != nil {
		return err
	}
	if call.Verb == internalclient.Create {
		call.Name = sent.(metav1.Object).GetName()
	}
	write := string(call.Verb) + " " + call.Resource + "/" + call.Name
	f.writes, f.bodies[write] = append(f.writes, write), string(body)
	return nil
}

// reconcileFlowConfig reconciles the default levels and schemas after a change of them, and returns
// the server, which has recorded the writes in sorted order.
func reconcileFlowConfig(t *testing.T, change func(*flowObjects)) *flowServer {
	t.Helper()
	live, err := defaultFlows()
	if err != nil {
		t.Fatal(err)
	}
	for i := range live.Levels {
		live.Levels[i].Generation = 1
	}
	for i := range live.Schemas {
		live.Schemas[i].Generation = 1
	}
	change(live)
	server := &flowServer{bodies: map[string]string{}, lists: map[string]any{
		"prioritylevelconfigurations": flowcontrolv1.PriorityLevelConfigurationList{Items: live.Levels},
		"flowschemas":                 flowcontrolv1.FlowSchemaList{Items: live.Schemas},
	}}
	bootstrap := &Bootstrap{Config: Config{API: &internalclient.Client{Doer: server}}}
	if err := bootstrap.reconcileFlowConfig(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(server.writes)
	return server
}

// TestReconcileRestoresDefaultFlowConfig checks which default levels and schemas are created, restored or kept.
func TestReconcileRestoresDefaultFlowConfig(t *testing.T) {
	level := func(server *flowObjects, name string) *flowcontrolv1.PriorityLevelConfiguration {
		return &server.Levels[slices.IndexFunc(server.Levels, func(l flowcontrolv1.PriorityLevelConfiguration) bool { return l.Name == name })]
	}
	schema := func(server *flowObjects, name string) *flowcontrolv1.FlowSchema {
		return &server.Schemas[slices.IndexFunc(server.Schemas, func(s flowcontrolv1.FlowSchema) bool { return s.Name == name })]
	}
	shares := int32(99)
	for _, test := range []struct {
		name   string
		change func(*flowObjects)
		want   string
		body   string // substring of the body of the single write
	}{
		{name: "unchanged", change: func(*flowObjects) {}, want: "", body: ""},
		{name: "changed suggested level", change: func(server *flowObjects) {
			level(server, "workload-low").Spec.Limited.NominalConcurrencyShares = &shares
		},
			want: "update prioritylevelconfigurations/workload-low", body: `"nominalConcurrencyShares":100`},
		{name: "changed shares of the exempt level", change: func(server *flowObjects) { level(server, "exempt").Spec.Exempt.NominalConcurrencyShares = &shares }, want: "", body: ""},
		{name: "schema without auto-update", change: func(server *flowObjects) {
			s := schema(server, "service-accounts")
			s.Annotations[autoUpdateSpec], s.Spec.MatchingPrecedence = "false", 8888
		}, want: "", body: ""},
		{name: "changed schema without annotation", change: func(server *flowObjects) {
			s := schema(server, "global-default")
			s.Annotations, s.Generation, s.Spec.MatchingPrecedence = nil, 2, 9901
		}, want: "update flowschemas/global-default", body: `"apf.kubernetes.io/autoupdate-spec":"false"`},
		{name: "unchanged level without annotation", change: func(server *flowObjects) { level(server, "global-default").Annotations = nil },
			want: "update prioritylevelconfigurations/global-default", body: `"apf.kubernetes.io/autoupdate-spec":"true"`},
		{name: "mandatory schema without auto-update", change: func(server *flowObjects) {
			s := schema(server, "catch-all")
			s.Annotations[autoUpdateSpec], s.Spec.DistinguisherMethod = "false", nil
		}, want: "update flowschemas/catch-all", body: `"distinguisherMethod":{"type":"ByUser"}`},
		{name: "only the annotation of a mandatory schema", change: func(server *flowObjects) { schema(server, "catch-all").Annotations[autoUpdateSpec] = "false" }, want: "", body: ""},
		{name: "other labels", change: func(server *flowObjects) { schema(server, "probes").Labels = map[string]string{"a": "b"} }, want: "", body: ""},
		{name: "user-created schema with auto-update", change: func(server *flowObjects) {
			server.Schemas = append(server.Schemas, *schema(server, "probes").DeepCopy())
			server.Schemas[len(server.Schemas)-1].Name = "own"
		},
			want: "delete flowschemas/own", body: `"preconditions"`},
		{name: "missing objects", change: func(server *flowObjects) { server.Levels = nil; server.Schemas = server.Schemas[1:] },
			want: "create flowschemas/catch-all create prioritylevelconfigurations/catch-all create prioritylevelconfigurations/exempt create prioritylevelconfigurations/global-default " +
				"create prioritylevelconfigurations/leader-election create prioritylevelconfigurations/node-high create prioritylevelconfigurations/system " +
				"create prioritylevelconfigurations/workload-high create prioritylevelconfigurations/workload-low", body: ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := reconcileFlowConfig(t, test.change)
			got := strings.Join(server.writes, " ")
			if got != test.want || test.body != "" && !strings.Contains(server.bodies[got], test.body) {
				t.Errorf("got writes %q with body %s, want %q with a body that contains %q", got, server.bodies[got], test.want, test.body)
			}
		})
	}
}
