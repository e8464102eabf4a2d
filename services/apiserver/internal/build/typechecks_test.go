package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// typeCheckResult returns the type-checking result in the status of a policy: the observed generation, and
// the first warning of each expression.
func (api *testServer) typeCheckResult(name string) string {
	api.t.Helper()
	p := api.mustSend(200, "GET", policiesPath+"/"+name, "")
	out := fmt.Sprint(p.field("status", "observedGeneration"))
	list, _ := p.field("status", "typeChecking", "expressionWarnings").([]any)
	for _, w := range list {
		m := w.(map[string]any)
		first, _, _ := strings.Cut(fmt.Sprint(m["warning"]), "\n")
		out += fmt.Sprintf(" %s: %s", m["fieldRef"], first)
	}
	return out
}

// waitForStatus waits until the status of a policy contains a text.
func (api *testServer) waitForStatus(name, want string) {
	api.t.Helper()
	api.waitUntil(fmt.Sprintf("the status of %s contains %q", name, want), func() bool { return api.typeCheckResult(name) == want })
}

// TestPolicyTypeErrorsAreReportedInStatus checks the warnings in the status of a policy, also after changes of the
// policy, of a definition, or of the status itself.
func TestPolicyTypeErrorsAreReportedInStatus(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	replicas := replicasOn(t, 2)
	first, second := replicas[0], replicas[1]
	const wrong = " spec.validations[0].expression: "
	first.mustSend(201, "POST", policiesPath,
		admissionPolicy("p", "", "configmaps", `"validations":[{"expression":"object.dat.size() > 0"}]`))
	first.waitForStatus("p", "1"+wrong+"/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'dat'")
	first.mustSend(200, "PATCH", policiesPath+"/p",
		`{"spec":{"validations":[{"expression":"object.data.size() > 0"}]}}`, "Content-Type",
		"application/merge-patch+json")
	first.waitForStatus("p", "2")
	first.mustSend(200, "PATCH", policiesPath+"/p", `{"spec":{"validations":[{"expression":"object.data == 1"}]}}`,
		"Content-Type", "application/merge-patch+json")
	first.waitForStatus("p",
		"3"+wrong+"/v1, Kind=ConfigMap: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(map(string, string), int)'")
	second.mustSend(200, "PATCH", policiesPath+"/p/status",
		`{"status":{"observedGeneration":0}}`, "Content-Type", "application/merge-patch+json")
	second.waitForStatus("p",
		"3"+wrong+"/v1, Kind=ConfigMap: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(map(string, string), int)'")

	// An undefined resource has no types; once it is defined, it is checked.
	first.mustSend(201, "POST", policiesPath, admissionPolicy("c", "example.com", "gadgets",
		`"paramKind":{"apiVersion":"example.com/v1","kind":"Limit"},"validations":[{"expression":"object.spec.size < params.spec.max"}]`))
	first.waitForStatus("c", "1")
	with := func(definition, field, kind string) string {
		return strings.Replace(definition, `{"type":"object"}`,
			`{"type":"object","properties":{"spec":{"type":"object","properties":{"`+field+`":{"type":"`+kind+`"}}}}}`,
			1)
	}
	gadgets := definitionOf("gadgets", "Gadget", "")
	limits := definitionOf("limits", "Limit", "")
	second.mustSend(201, "POST", definitionsPath, with(gadgets, "length", "integer"))
	first.waitForStatus("c", "1"+wrong+"example.com/v1, Kind=Gadget: ERROR: <input>:1:12: undefined field 'size'")
	second.mustSend(200, "PATCH", definitionsPath+"/gadgets.example.com", with(gadgets, "size", "integer"),
		"Content-Type", "application/merge-patch+json")
	first.waitForStatus("c", "1")
	second.mustSend(201, "POST", definitionsPath, with(limits, "max", "string"))
	first.waitForStatus("c",
		"1"+wrong+"example.com/v1, Kind=Gadget: ERROR: <input>:1:18: found no matching overload for '_<_' applied to '(int, string)'")
	second.mustSend(200, "DELETE", definitionsPath+"/limits.example.com", "")
	first.waitForStatus("c", "1")
	second.mustSend(200, "DELETE", definitionsPath+"/gadgets.example.com", "")

	// The result keeps the field manager of Kubernetes.
	before := first.mustSend(200, "GET", policiesPath+"/p", "")
	if managers := fmt.Sprint(before.field("metadata", "managedFields")); !strings.Contains(managers,
		"manager:validatingadmissionpolicy-status operation:Apply subresource:status") {
		t.Errorf("got managers %s, want validatingadmissionpolicy-status with operation Apply", managers)
	}
	restarted := startServer(t, func(options *config.Options) { options.Etcd = first.options.Etcd })
	restarted.mustSend(201, "POST", policiesPath, admissionPolicy("last", "", "configmaps", `"validations":[{"expression":"true"}]`))
	restarted.waitForStatus("last", "1") // typeCheckResult after the others
	if after := restarted.mustSend(200, "GET", policiesPath+"/p", ""); after.resourceVersion() != before.resourceVersion() {
		t.Errorf("unchanged status after a restart: got %s, want version %s", after.body, before.resourceVersion())
	}
}

// TestPolicyTypeChecksCanBeDisabled checks the flag.
func TestPolicyTypeChecksCanBeDisabled(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) { options.Admission.TypeChecks = false })
	p := api.mustSend(201, "POST", policiesPath,
		admissionPolicy("p", "", "configmaps", `"validations":[{"expression":"object.dat == 1"}]`))
	api.mustSend(201, "POST", definitionsPath, definitionOf("gadgets", "Gadget", ""))
	if now := api.mustSend(200, "GET", policiesPath+"/p", ""); now.resourceVersion() != p.resourceVersion() {
		t.Errorf("got policy %s, want version %s", now.body, p.resourceVersion())
	}
}
