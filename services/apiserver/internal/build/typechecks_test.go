package build

import (
	"fmt"
	"strings"
	"testing"
)

// checked is what the status of a policy tells of types: the generation that was looked
// at, and the first warning of each expression.
func (a *api) checked(name string) string {
	a.t.Helper()
	p := a.want(200, "GET", policiesPath+"/"+name, "")
	out := fmt.Sprint(p.at("status", "observedGeneration"))
	list, _ := p.at("status", "typeChecking", "expressionWarnings").([]any)
	for _, w := range list {
		m := w.(map[string]any)
		first, _, _ := strings.Cut(fmt.Sprint(m["warning"]), "\n")
		out += fmt.Sprintf(" %s: %s", m["fieldRef"], first)
	}
	return out
}

// tells waits until the status of a policy tells something.
func (a *api) tells(name, want string) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("the status of %s tells %q", name, want), func() bool { return a.checked(name) == want })
}

// TestTypesOfPolicies: what is wrong with the expressions of a policy stands in its
// status, also when that changes because of the policy, of a definition, or of what
// somebody wrote there.
func TestTypesOfPolicies(t *testing.T) {
	t.Parallel()
	replicas := replicasOn(t, 2)
	a, b := replicas[0], replicas[1]
	const wrong = " spec.validations[0].expression: "
	a.want(201, "POST", policiesPath, admissionPolicy("p", "", "configmaps", `"validations":[{"expression":"object.dat.size() > 0"}]`))
	a.tells("p", "1"+wrong+"/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'dat'")
	a.want(200, "PATCH", policiesPath+"/p", `{"spec":{"validations":[{"expression":"object.data.size() > 0"}]}}`, "Content-Type", "application/merge-patch+json")
	a.tells("p", "2")
	a.want(200, "PATCH", policiesPath+"/p", `{"spec":{"validations":[{"expression":"object.data == 1"}]}}`, "Content-Type", "application/merge-patch+json")
	a.tells("p", "3"+wrong+"/v1, Kind=ConfigMap: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(map(string, string), int)'")
	b.want(200, "PATCH", policiesPath+"/p/status", `{"status":{"observedGeneration":0}}`, "Content-Type", "application/merge-patch+json")
	b.tells("p", "3"+wrong+"/v1, Kind=ConfigMap: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(map(string, string), int)'")

	// Of what is not defined nothing is known; when it is, that counts.
	a.want(201, "POST", policiesPath, admissionPolicy("c", "example.com", "gadgets", `"paramKind":{"apiVersion":"example.com/v1","kind":"Limit"},"validations":[{"expression":"object.spec.size < params.spec.max"}]`))
	a.tells("c", "1")
	with := func(definition, field, kind string) string {
		return strings.Replace(definition, `{"type":"object"}`, `{"type":"object","properties":{"spec":{"type":"object","properties":{"`+field+`":{"type":"`+kind+`"}}}}}`, 1)
	}
	gadgets, limits := definitionOf("gadgets", "Gadget", ""), definitionOf("limits", "Limit", "")
	b.want(201, "POST", definitionsPath, with(gadgets, "length", "integer"))
	a.tells("c", "1"+wrong+"example.com/v1, Kind=Gadget: ERROR: <input>:1:12: undefined field 'size'")
	b.want(200, "PATCH", definitionsPath+"/gadgets.example.com", with(gadgets, "size", "integer"), "Content-Type", "application/merge-patch+json")
	a.tells("c", "1")
	b.want(201, "POST", definitionsPath, with(limits, "max", "string"))
	a.tells("c", "1"+wrong+"example.com/v1, Kind=Gadget: ERROR: <input>:1:18: found no matching overload for '_<_' applied to '(int, string)'")
	b.want(200, "DELETE", definitionsPath+"/limits.example.com", "")
	a.tells("c", "1")
	b.want(200, "DELETE", definitionsPath+"/gadgets.example.com", "")

	// What was told once stays, by the manager that has it in Kubernetes.
	before := a.want(200, "GET", policiesPath+"/p", "")
	if managers := fmt.Sprint(before.at("metadata", "managedFields")); !strings.Contains(managers, "manager:validatingadmissionpolicy-status operation:Apply subresource:status") {
		t.Errorf("its fields are managed by %s", managers)
	}
	restarted := start(t, func(o *Options) { o.Etcd = a.parts.options.Etcd })
	restarted.want(201, "POST", policiesPath, admissionPolicy("last", "", "configmaps", `"validations":[{"expression":"true"}]`))
	restarted.tells("last", "1") // which is looked at after the others
	if after := restarted.want(200, "GET", policiesPath+"/p", ""); after.version() != before.version() {
		t.Errorf("it was written again: %s", after.body)
	}
}

// TestTypesAreLeftAlone where that is wanted.
func TestTypesAreLeftAlone(t *testing.T) {
	t.Parallel()
	a := start(t, func(o *Options) { o.Admission.TypeChecks = false })
	p := a.want(201, "POST", policiesPath, admissionPolicy("p", "", "configmaps", `"validations":[{"expression":"object.dat == 1"}]`))
	a.want(201, "POST", definitionsPath, definitionOf("gadgets", "Gadget", ""))
	if now := a.want(200, "GET", policiesPath+"/p", ""); now.version() != p.version() {
		t.Errorf("it was written: %s", now.body)
	}
}
