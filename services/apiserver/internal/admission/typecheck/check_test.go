package typecheck

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry"
)

// gadgetSchema is the schema of a custom resource.
const gadgetSchema = `{"type":"object","properties":{
	"kind":{"type":"string"},"apiVersion":{"type":"string"},"metadata":{"type":"object"},
	"spec":{"type":"object","properties":{
		"size":{"type":"integer"},"ratio":{"type":"number"},"since":{"type":"string","format":"date-time"},"port":{"x-kubernetes-int-or-string":true},
		"namespace":{"type":"string"},"a-b":{"type":"string"},"any":{"x-kubernetes-preserve-unknown-fields":true},
		"open":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"known":{"type":"string"}}},
		"limits":{"type":"object","additionalProperties":{"type":"integer"}},
		"parts":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}}},
		"template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}
	}}}}`

// resolver knows the built-in kinds and one custom kind.
type resolver struct {
	*openapi.Schemas
	kinds  []*registry.Kind
	gadget *spec.Schema
}

var gadgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}

func (k *resolver) Kinds(group, version, resource string) (found []schema.GroupVersionKind) {
	for _, kind := range k.kinds {
		if (group == "" || kind.Group == group) && kind.Version == version && kind.Resource == resource {
			found = append(found, kind.GVK())
		}
	}
	if group == gadgetKind.Group && version == gadgetKind.Version && strings.HasPrefix(resource, "gadgets") {
		found = append(found, gadgetKind)
	}
	return found
}

func (k *resolver) Schema(kind schema.GroupVersionKind) *spec.Schema {
	if kind == gadgetKind {
		return k.Custom(kind, k.gadget)
	}
	return k.BuiltIn(kind)
}

func newResolver(t *testing.T) *resolver {
	t.Helper()
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	k := &resolver{Schemas: openapi.NewSchemas(builtin.Scheme()), kinds: catalog.Kinds(), gadget: &spec.Schema{}}
	if err := json.Unmarshal([]byte(gadgetSchema), k.gadget); err != nil {
		t.Fatal(err)
	}
	return k
}

// matchResources returns rules for resources written as group/version/resource.
func matchResources(resources ...string) *admissionregistrationv1.MatchResources {
	out := &admissionregistrationv1.MatchResources{}
	for _, resource := range resources {
		parts := strings.SplitN(resource, "/", 3)
		out.ResourceRules = append(
			out.ResourceRules,
			admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Rule: admissionregistrationv1.Rule{
					APIGroups:   strings.Split(parts[0], ","),
					APIVersions: strings.Split(parts[1], ","),
					Resources:   strings.Split(parts[2], ","),
				},
			}},
		)
	}
	return out
}

// TestIllTypedExpressionsCauseWarnings checks the warnings for expressions whose types do not fit the
// matched kinds.
func TestIllTypedExpressionsCauseWarnings(t *testing.T) {
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	schemas := newResolver(t)
	for _, test := range []struct {
		name, rule                 string
		paramKind, paramAPIVersion string   // of the parameters, if any
		variables                  []string // pairs of a name and an expression
		expression                 string
		want                       string // warning, or ""
	}{
		{name: "types fit", rule: "apps/v1/deployments", expression: "object.spec.replicas > 1 && oldObject.metadata.namespace != ''"},
		{
			name: "unknown field", rule: "apps/v1/deployments", expression: "object.replicas > 1",
			want: "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n",
		},
		{
			name: "unknown field of two kinds", rule: "apps/v1/replicasets,deployments", expression: "object.replicas > 1",
			want: "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n" +
				"\napps/v1, Kind=ReplicaSet: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n",
		},
		{
			name: "field of one of two kinds", rule: "apps,/v1/deployments,pods", expression: "object.spec.containers.size() > 0",
			want: "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'containers'\n | object.spec.containers.size() > 0\n | ...........^\n",
		},
		{
			name: "wrong type", rule: "/v1/pods", expression: "object.spec.nodeName == 1",
			want: "/v1, Kind=Pod: ERROR: <input>:1:22: found no matching overload for '_==_' applied to '(string, int)'\n | object.spec.nodeName == 1\n | .....................^\n",
		},
		{
			name: "two errors", rule: "/v1/pods", expression: "object.a == object.b",
			want: "/v1, Kind=Pod: ERROR: <input>:1:7: undefined field 'a'\n | object.a == object.b\n | ......^\nERROR: <input>:1:19: undefined field 'b'\n | object.a == object.b\n | ..................^\n",
		},
		{
			name: "object type in a warning", rule: "/v1/pods", expression: "object.spec == 'a'",
			want: "/v1, Kind=Pod: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(Pod0.spec, string)'\n | object.spec == 'a'\n | ............^\n",
		},
		{
			name: "type of a list element in a warning", rule: "/v1/pods", expression: "object.spec.containers[0] == 1",
			want: "/v1, Kind=Pod: ERROR: <input>:1:27: found no matching overload for '_==_' applied to '(Pod0.spec.containers.@idx, int)'\n | object.spec.containers[0] == 1\n | ..........................^\n",
		},
		{
			name: "quantities have no type", rule: "/v1/pods",
			expression: "object.spec.containers.all(c, has(c.resources.limits))",
			want:       "/v1, Kind=Pod: ERROR: <input>:1:34: undefined field 'limits'\n | object.spec.containers.all(c, has(c.resources.limits))\n | .................................^\n",
		},
		{
			name: "ports are numbers or names", rule: "/v1/services",
			expression: "object.spec.ports.all(p, p.targetPort == 80 || p.targetPort == 'web')",
		},
		{
			name: "bytes and times", rule: "/v1/secrets",
			expression: "object.data.all(k, object.data[k].size() < 9) && object.metadata.creationTimestamp > timestamp('2024-01-01T00:00:00Z')",
		},
		{
			name: "recursive type", rule: "apiextensions.k8s.io/v1/customresourcedefinitions",
			expression: "object.spec.versions.all(v, has(v.schema.openAPIV3Schema.not.type))",
			want:       "apiextensions.k8s.io/v1, Kind=CustomResourceDefinition: ERROR: <input>:1:32: undefined field 'type'\n | object.spec.versions.all(v, has(v.schema.openAPIV3Schema.not.type))\n | ...............................^\n",
		},

		{
			name: "fields of a custom resource", rule: "example.com/v1/gadgets",
			expression: "object.spec.size > 1 && object.spec.ratio < 0.5 && object.metadata.labels.size() == 0 && object.spec.since < timestamp('2024-01-01T00:00:00Z')",
		},
		{name: "numbers or text", rule: "example.com/v1/gadgets", expression: "object.spec.port == 1 || object.spec.port == 'a'"},
		{
			name: "names that need quoting", rule: "example.com/v1/gadgets",
			expression: "object.spec.a__dash__b == 'x' && object.spec.namespace == '' && object.spec.__namespace__ == ''",
		},
		{
			name: "preserved fields", rule: "example.com/v1/gadgets",
			expression: "object.spec.open.known == '' && object.spec.open.other == ''",
			want:       "example.com/v1, Kind=Gadget: ERROR: <input>:1:49: undefined field 'other'\n | object.spec.open.known == '' && object.spec.open.other == ''\n | ................................................^\n",
		},
		{
			name: "field without type", rule: "example.com/v1/gadgets", expression: "object.spec.any == 1",
			want: "example.com/v1, Kind=Gadget: ERROR: <input>:1:12: undefined field 'any'\n | object.spec.any == 1\n | ...........^\n",
		},
		{name: "maps and lists", rule: "example.com/v1/gadgets", expression: "object.spec.limits.x > 1 && object.spec.parts.exists(p, p.name == '')"},
		{name: "embedded resource", rule: "example.com/v1/gadgets", expression: "object.spec.template.metadata.name == object.spec.template.kind"},
		{
			name: "wrong type in a custom resource", rule: "example.com/v1/gadgets",
			expression: "object.spec.limits.x == 'a'",
			want:       "example.com/v1, Kind=Gadget: ERROR: <input>:1:22: found no matching overload for '_==_' applied to '(int, string)'\n | object.spec.limits.x == 'a'\n | .....................^\n",
		},

		{
			name: "wrong type in parameters", rule: "/v1/pods", paramKind: "ConfigMap", paramAPIVersion: "v1",
			expression: "params.data.x == 1",
			want:       "/v1, Kind=Pod: ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(string, int)'\n | params.data.x == 1\n | ..............^\n",
		},
		{
			name: "parameters of the same kind", rule: "example.com/v1/gadgets", paramKind: "Gadget",
			paramAPIVersion: "example.com/v1",
			expression:      "object.spec.size < params.spec.size && object.spec == params.spec",
			want:            "example.com/v1, Kind=Gadget: ERROR: <input>:1:52: found no matching overload for '_==_' applied to '(Gadget0.spec, Gadget1.spec)'\n | object.spec.size < params.spec.size && object.spec == params.spec\n | ...................................................^\n",
		},
		{name: "parameters of an unknown kind", rule: "/v1/pods", paramKind: "Unknown", paramAPIVersion: "example.org/v1", expression: "params.spec.anything == 1"},
		{
			name: "params without paramKind", rule: "/v1/pods", expression: "params.a == 1",
			want: "/v1, Kind=Pod: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.a == 1\n | ^\n",
		},

		{
			name: "variables", rule: "/v1/pods",
			variables:  []string{"n", "object.spec.containers.size()", "m", "variables.n * 2"},
			expression: "variables.m == 'a'",
			want:       "/v1, Kind=Pod: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(int, string)'\n | variables.m == 'a'\n | ............^\n",
		},
		{
			name: "variables of object types are dynamic", rule: "/v1/pods",
			variables: []string{"s", "object.spec"}, expression: "variables.s.nothing == 1",
		},
		{
			name: "invalid variables are dynamic", rule: "/v1/pods",
			variables: []string{"s", "object.spec.nothing"}, expression: "variables.s.more == 1",
		},
		{
			name: "unknown variable", rule: "/v1/pods", expression: "variables.s == 1",
			want: "/v1, Kind=Pod: ERROR: <input>:1:10: undefined field 's'\n | variables.s == 1\n | .........^\n",
		},

		{
			name: "request and namespace", rule: "/v1/pods",
			expression: "request.userInfo.absent == namespaceObject.metadata.nothing",
			want:       "/v1, Kind=Pod: ERROR: <input>:1:17: undefined field 'absent'\n | request.userInfo.absent == namespaceObject.metadata.nothing\n | ................^\nERROR: <input>:1:52: undefined field 'nothing'\n | request.userInfo.absent == namespaceObject.metadata.nothing\n | ...................................................^\n",
		},
		{name: "authorizer", rule: "/v1/pods", expression: "authorizer.group('').resource('pods').check('create').allowed()"},
		{
			name: "the authorizer's resource is unknown", rule: "/v1/pods",
			expression: "authorizer.requestResource.check('get').allowed()",
			want:       "/v1, Kind=Pod: ERROR: <input>:1:11: unexpected failed resolution of 'kubernetes.authorization.Authorizer'\n | authorizer.requestResource.check('get').allowed()\n | ..........^\n",
		},
		{name: "result may have any type", rule: "/v1/pods", expression: "'no bool'"},

		{name: "rule for all groups is not checked", rule: "*/v1/pods", expression: "object.a"},
		{name: "rule for all versions is not checked", rule: "/*/pods", expression: "object.a"},
		{name: "rule for all resources is not checked", rule: "/v1/*", expression: "object.a"},
		{name: "rule for a subresource is not checked", rule: "/v1/pods/status", expression: "object.a"},
		{name: "rule for an unknown resource is not checked", rule: "/v1/nothings", expression: "object.a"},
		{name: "events of the core group exist in events.k8s.io, too", rule: "/v1/events", expression: "object.regarding.name == '' || object.involvedObject.name == ''", want: "/v1, Kind=Event: ERROR: <input>:1:7: undefined field 'regarding'\n | object.regarding.name == '' || object.involvedObject.name == ''\n | ......^\n" +
			"\nevents.k8s.io/v1, Kind=Event: ERROR: <input>:1:38: undefined field 'involvedObject'\n | object.regarding.name == '' || object.involvedObject.name == ''\n | .....................................^\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			policy := &admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: matchResources(test.rule),
				Validations:      []admissionregistrationv1.Validation{{Expression: "true"}, {Expression: test.expression}},
			}
			if test.paramKind != "" {
				policy.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: test.paramAPIVersion, Kind: test.paramKind}
			}
			for pair := range slices.Chunk(test.variables, 2) {
				policy.Variables = append(policy.Variables, admissionregistrationv1.Variable{Name: pair[0], Expression: pair[1]})
			}
			var want []admissionregistrationv1.ExpressionWarning
			if test.want != "" {
				want = []admissionregistrationv1.ExpressionWarning{{FieldRef: "spec.validations[1].expression", Warning: test.want}}
			}
			if got := newChecker(compiler, schemas).warnings(policy); !slices.Equal(got, want) {
				t.Errorf("got warnings %q, want %q", got, want)
			}
		})
	}
}

// TestMessageExpressionsAreChecked checks that messageExpressions cause warnings as well as
// expressions.
func TestMessageExpressionsAreChecked(t *testing.T) {
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: matchResources("/v1/pods"), Validations: []admissionregistrationv1.Validation{
		{Expression: "object.a", MessageExpression: "object.b"},
		{Expression: "true", MessageExpression: "object.metadata.name"},
		{Expression: "object.c"},
	}}
	var got []string
	for _, warning := range newChecker(compiler, newResolver(t)).warnings(policy) {
		_, field, _ := strings.Cut(warning.Warning, "undefined field ")
		got = append(got, warning.FieldRef+" "+field[:3])
	}
	want := []string{
		"spec.validations[0].expression 'a'", "spec.validations[0].messageExpression 'b'", "spec.validations[2].expression 'c'",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got undefined fields %q, want %q", got, want)
	}
}

// TestKindsOfPolicyAreSortedAndLimited checks that kindsOf sorts the kinds, takes at most ten kinds
// of a rule, and ignores the later rules once a rule has ten.
func TestKindsOfPolicyAreSortedAndLimited(t *testing.T) {
	kinds := func(group, version, resource string) []schema.GroupVersionKind {
		return []schema.GroupVersionKind{{Group: group, Version: version, Kind: strings.ToUpper(resource)}}
	}
	var resources []string
	for i := range maxRuleKinds + 2 {
		resources = append(resources, fmt.Sprintf("r%02d", i))
	}
	nineKinds := "a/v1/" + strings.Join(resources[:maxRuleKinds-1], ",")
	twelveKinds := "a/v1/" + strings.Join(resources, ",")
	for name, test := range map[string]struct {
		rules []string
		want  int // number of kinds
	}{
		"one rule below the limit":                        {rules: []string{nineKinds}, want: 9},
		"later rule completes ten kinds":                  {rules: []string{nineKinds, "b/v1/x"}, want: 10},
		"later rule exceeds ten kinds":                    {rules: []string{nineKinds, "b/v1/x,y,z"}, want: 12},
		"one rule above the limit is truncated":           {rules: []string{twelveKinds}, want: 10},
		"rules after a truncated rule have no effect":     {rules: []string{"b/v1/x", twelveKinds, "c/v1/x"}, want: 11},
		"a kind of two rules is counted once in a result": {rules: []string{"a/v1/r00", "a/v1/r00"}, want: 1},
	} {
		if got := kindsOf(matchResources(test.rules...), kinds); len(got) != test.want {
			t.Errorf("%s: kindsOf(%v) = %v, want %d kinds", name, test.rules, got, test.want)
		}
	}
	got := kindsOf(matchResources("b/v2,v1/y,x", "/v1/pods", "a/v1/z"), kinds)
	if want := "[/v1, Kind=PODS a/v1, Kind=Z b/v1, Kind=X b/v1, Kind=Y b/v2, Kind=X b/v2, Kind=Y]"; fmt.Sprint(got) != want {
		t.Errorf("got order %v, want %s", got, want)
	}
}

// TestKindLookupsAreBounded checks that the number of lookups for a policy with many rules or names is
// bounded.
func TestKindLookupsAreBounded(t *testing.T) {
	var names, rules []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("n%d", i))
		rules = append(rules, fmt.Sprintf("a/v1/n%d", i))
	}
	list := strings.Join(names, ",")
	lookups := 0
	noKinds := func(string, string, string) []schema.GroupVersionKind {
		lookups++
		if lookups > 100_000 {
			t.Fatal("the number of lookups is not bounded")
		}
		return nil
	}
	if got := kindsOf(matchResources(list+"/"+list+"/"+list), noKinds); len(got) > 0 {
		t.Errorf("no resource exists: got kinds %v, want none", got)
	}
	oneKind := func(group, version, resource string) []schema.GroupVersionKind {
		return []schema.GroupVersionKind{{Group: group, Version: version, Kind: resource}}
	}
	if got := kindsOf(matchResources(rules...), oneKind); len(got) != maxPolicyKinds {
		t.Errorf("%d rules: got %d kinds, want %d", len(rules), len(got), maxPolicyKinds)
	}
}

// TestWarningsAreBounded checks that the status has a bounded size for any policy.
func TestWarningsAreBounded(t *testing.T) {
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: matchResources("/v1/pods,services,secrets,configmaps")}
	expression := strings.TrimSuffix(strings.Repeat("object.a + ", 90), " + ") + " == 0"
	for range 60 {
		policy.Validations = append(policy.Validations, admissionregistrationv1.Validation{Expression: expression})
	}
	total := 0
	for _, warning := range newChecker(compiler, newResolver(t)).warnings(policy) {
		total += len(warning.Warning)
		if len(warning.Warning) > maxWarning || !strings.HasSuffix(warning.Warning, "\n...") {
			t.Fatalf("got a warning of %d bytes that ends with %q; want at most %d, with an ellipsis",
				len(warning.Warning), warning.Warning[len(warning.Warning)-20:], maxWarning)
		}
	}
	if total > maxWarnings+maxWarning || total < maxWarnings {
		t.Errorf("got warnings of %d bytes in total, want %d to %d", total, maxWarnings, maxWarnings+maxWarning)
	}
}

// TestWarningsAreComparedWithoutTypeNumbers checks that warnings are equal if only the numbers
// in names of generated types, such as Pod0, differ.
func TestWarningsAreComparedWithoutTypeNumbers(t *testing.T) {
	warning := func(text string) []admissionregistrationv1.ExpressionWarning {
		return []admissionregistrationv1.ExpressionWarning{{FieldRef: "f", Warning: text}}
	}
	const ours = "/v1, Kind=Pod: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(Pod0.spec, string)'\n"
	for text, want := range map[string]bool{
		ours: true, strings.Replace(ours, "Pod0", "Pod83472916", 1): true,
		strings.Replace(ours, ":13:", ":14:", 1): false, strings.Replace(ours, "spec", "status", 1): false,
	} {
		if got := equalWarnings(warning(ours), warning(text)); got != want {
			t.Errorf("equalWarnings(%q, %q) = %t, want %t", ours, text, got, want)
		}
	}
	if equalWarnings(warning(ours), nil) {
		t.Error("one warning and no warning: got equal, want different")
	}
	if !equalWarnings(nil, nil) {
		t.Error("no warnings twice: got different, want equal")
	}
}
