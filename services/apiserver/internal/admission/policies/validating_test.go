package policies_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
)

// param is a config map by which policies are set.
func param(name, labels, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","namespace":"default","labels":` + labels + `},"data":` + data + `}`
}

const refused = `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: `

// dear costs much of what all expressions of a policy may together, and is true.
const dear = `[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, true)))))`

func TestVerdicts(t *testing.T) {
	const ofConfigMaps = `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`
	const ofNodes = `"paramKind":{"apiVersion":"v1","kind":"Node"},`
	a, b := param("a", `{"set":"one"}`, `{"max":"1"}`), param("b", `{"set":"one"}`, `{"max":"2"}`)
	for _, tt := range []struct {
		name, policy, binding string
		more                  []string
		want                  string // what is said of an object with one value; empty when it may be
	}{
		{name: "true", policy: `"validations":[{"expression":"object.data.a == 'b'"}]`, binding: deny},
		{name: "false", policy: `"validations":[{"expression":"object.data.a == 'c'"}]`, binding: deny, want: "422 Invalid " + refused + "failed expression: object.data.a == 'c'"},
		{name: "a message", policy: `"validations":[{"expression":"false","message":" no ","reason":"Forbidden"}]`, binding: deny, want: "403 Forbidden " + refused + "no"},
		{name: "a message that is found out", policy: `"validations":[{"expression":"false","message":"no","messageExpression":"'not ' + object.data.a","reason":"RequestEntityTooLarge"}]`, binding: deny, want: "413 RequestEntityTooLarge " + refused + "not b"},
		{name: "a message that is not found out", policy: `"validations":[{"expression":"false","message":"no","messageExpression":"object.data.nothing"}]`, binding: deny, want: "422 Invalid " + refused + "no"},
		{name: "a message of lines", policy: `"validations":[{"expression":"false","message":"no","messageExpression":"'a\\nb'"}]`, binding: deny, want: "422 Invalid " + refused + "no"},
		{name: "the first that fails", policy: `"validations":[{"expression":"true"},{"expression":"false","message":"one"},{"expression":"false","message":"two"}]`, binding: deny, want: "422 Invalid " + refused + "one"},
		{name: "an error", policy: `"validations":[{"expression":"object.data.nothing == 'b'"}]`, binding: deny, want: "422 Invalid " + refused + "expression 'object.data.nothing == 'b'' resulted in error: no such key: nothing"},
		{name: "an error that is ignored", policy: `"failurePolicy":"Ignore","validations":[{"expression":"object.data.nothing == 'b'"}]`, binding: deny},
		{name: "false is not ignored", policy: `"failurePolicy":"Ignore","validations":[{"expression":"false"}]`, binding: deny, want: "422 Invalid " + refused + "failed expression: false"},
		{name: "what does not compile", policy: `"validations":[{"expression":"nothing"}]`, binding: deny, want: "422 Invalid " + refused + "compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing' (in container '')\n | nothing\n | ^"},
		{name: "it is ignored", policy: `"failurePolicy":"Ignore","validations":[{"expression":"nothing"}]`, binding: deny},
		{name: "more than it may cost", policy: `"validations":[` + strings.Repeat(`{"expression":"[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, true)))))"},`, 30) + `{"expression":"true"}]`, binding: deny, want: "422 Invalid " + refused + "validation failed due to running out of cost budget, no further validation rules will be run"},
		{name: "a condition that is false", policy: `"matchConditions":[{"name":"c","expression":"request.userInfo.username == 'bob'"}],"validations":[{"expression":"false"}]`, binding: deny},
		{name: "a condition that fails", policy: `"matchConditions":[{"name":"c","expression":"object.data.nothing == 'b'"}],"validations":[{"expression":"true"}]`, binding: deny, want: "422 Invalid " + refused + "expression 'object.data.nothing == 'b'' resulted in error: no such key: nothing"},
		{name: "a variable", policy: `"variables":[{"name":"v","expression":"object.data.a"},{"name":"w","expression":"variables.v + 'x'"}],"validations":[{"expression":"variables.w == 'bx'"}]`, binding: deny},
		{name: "a variable that fails and is not read", policy: `"variables":[{"name":"v","expression":"object.data.nothing"}],"validations":[{"expression":"true || variables.v == ''"}]`, binding: deny},
		{name: "a variable that fails", policy: `"variables":[{"name":"v","expression":"object.data.nothing"}],"validations":[{"expression":"variables.v == ''"}]`, binding: deny, want: "422 Invalid " + refused + "expression 'variables.v == ''' resulted in error: composited variable \"v\" fails to evaluate: no such key: nothing"},
		{name: "the namespace", policy: `"validations":[{"expression":"namespaceObject.metadata.name == 'default'"}]`, binding: deny},
		{name: "the authorizer", policy: `"validations":[{"expression":"authorizer.group('').resource('pods').check('get').allowed()"}]`, binding: deny, want: "422 Invalid " + refused + "failed expression: authorizer.group('').resource('pods').check('get').allowed()"},
		{name: "a binding that is for others", policy: `"validations":[{"expression":"false"}]`, binding: deny + `,"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}`},
		{name: "a binding that leaves it out", policy: `"validations":[{"expression":"false"}]`, binding: deny + `,"matchResources":{"excludeResourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}`},
		{name: "a namespace that is not meant", policy: `"validations":[{"expression":"false"}]`, binding: deny + `,"matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"other"}}}`},

		{name: "a message that is too long", policy: `"validations":[{"expression":"false","message":"no","messageExpression":"'` + strings.Repeat("x", 5<<10+1) + `'"}]`, binding: deny, want: "422 Invalid " + refused + "no"},
		{name: "a message beside an error", policy: `"validations":[{"expression":"object.data.nothing == 'b'","messageExpression":"'other'"}]`, binding: deny, want: "422 Invalid " + refused + "expression 'object.data.nothing == 'b'' resulted in error: no such key: nothing"},
		{name: "a reason of its own", policy: `"validations":[{"expression":"false","message":"no","reason":"Unauthorized"}]`, binding: deny, want: "401 Unauthorized " + refused + "no"},

		{name: "a reference of a policy that has no parameters", policy: `"validations":[{"expression":"true"}]`, binding: deny + `,"paramRef":{"name":"a","parameterNotFoundAction":"Deny"}`},
		{name: "a namespace of what stands in none", policy: ofNodes + `"validations":[{"expression":"true"}]`, binding: deny + `,"paramRef":{"name":"a","namespace":"default","parameterNotFoundAction":"Deny"}`, want: "422 Invalid " + refused + "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"},
		{name: "a parameter that stands in none", policy: ofNodes + `"validations":[{"expression":"params.metadata.name == 'n'"}]`, binding: deny + `,"paramRef":{"name":"n","parameterNotFoundAction":"Deny"}`, more: []string{`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`}},
		{name: "a name and a selector", policy: ofConfigMaps + `"validations":[{"expression":"true"}]`, binding: deny + `,"paramRef":{"name":"a","selector":{},"parameterNotFoundAction":"Allow"}`, more: []string{a}, want: "422 Invalid " + refused + "failed to configure binding: paramRef.name and paramRef.selector are mutually exclusive"},
		{name: "neither", policy: ofConfigMaps + `"validations":[{"expression":"true"}]`, binding: deny + `,"paramRef":{"parameterNotFoundAction":"Allow"}`, want: "422 Invalid " + refused + "failed to configure binding: one of name or selector must be provided"},
		{name: "a selector that cannot be read", policy: ofConfigMaps + `"validations":[{"expression":"true"}]`, binding: deny + `,"paramRef":{"selector":{"matchExpressions":[{"key":"a","operator":"Odd"}]},"parameterNotFoundAction":"Allow"}`, more: []string{a}, want: "422 Invalid " + refused + `failed to configure binding: "Odd" is not a valid label selector operator`},
		{name: "what is wrong is ignored", policy: `"failurePolicy":"Ignore",` + ofConfigMaps + `"validations":[{"expression":"true"}]`, binding: deny + `,"paramRef":{"parameterNotFoundAction":"Allow"}`},

		{name: "a parameter", policy: ofConfigMaps + `"validations":[{"expression":"object.data.size() <= int(params.data.max)"}]`, binding: deny + `,"paramRef":{"name":"a","parameterNotFoundAction":"Deny"}`, more: []string{a}},
		{name: "a parameter of another namespace", policy: ofConfigMaps + `"validations":[{"expression":"params.data.max == '1'"}]`, binding: deny + `,"paramRef":{"name":"a","namespace":"other","parameterNotFoundAction":"Deny"}`, more: []string{a}, want: "422 Invalid " + refused + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
		{name: "all that a selector finds", policy: ofConfigMaps + `"validations":[{"expression":"params.data.max == '1'","messageExpression":"string(params.metadata.name)"}]`, binding: deny + `,"paramRef":{"selector":{"matchLabels":{"set":"one"}},"parameterNotFoundAction":"Deny"}`, more: []string{a, b}, want: "422 Invalid " + refused + "b"},
		{name: "nothing found, denied", policy: ofConfigMaps + `"validations":[{"expression":"true"}]`, binding: deny + `,"paramRef":{"selector":{"matchLabels":{"set":"two"}},"parameterNotFoundAction":"Deny"}`, more: []string{a}, want: "422 Invalid " + refused + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
		{name: "nothing found, allowed", policy: ofConfigMaps + `"validations":[{"expression":"false"}]`, binding: deny + `,"paramRef":{"name":"c","parameterNotFoundAction":"Allow"}`, more: []string{a}},
		{name: "no reference", policy: ofConfigMaps + `"validations":[{"expression":"params == null"}]`, binding: deny},
		{name: "a kind that is not there", policy: `"paramKind":{"apiVersion":"example.com/v1","kind":"Nothing"},"validations":[{"expression":"true"}]`, binding: deny + `,"paramRef":{"name":"c","parameterNotFoundAction":"Allow"}`, want: "422 Invalid configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Nothing'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, append(tt.more, policy("p", tt.policy), bound("p", tt.binding))...)
			r := w.configMap("a", "b")
			if got := said(w.validating.Validate(t.Context(), r)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// What a policy notes for the audit log.
func TestAuditAnnotations(t *testing.T) {
	w := newWorld(t,
		policy("p", `"validations":[{"expression":"true"},{"expression":"object.data.a == 'c'","messageExpression":"'it is ' + object.data.a"}],"auditAnnotations":[{"key":"k","valueExpression":"'size ' + string(object.data.size())"},{"key":"none","valueExpression":"null"}]`),
		bound("p", `"validationActions":["Audit"]`),
		policy("q", `"failurePolicy":"Ignore","auditAnnotations":[{"key":"k","valueExpression":"string(object.data.nothing)"}]`), bound("q", deny))
	r := w.configMap("a", "b")
	if err := w.validating.Validate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want := `{"p/k":"size 1","validation.policy.admission.k8s.io/validation_failure":"[{\"message\":\"it is b\",\"policy\":\"p\",\"binding\":\"p\",\"expressionIndex\":1,\"validationActions\":[\"Audit\"]}]"}`
	if got := asJSON(r.Annotations()); got != want {
		t.Errorf("annotations are\n%s, want\n%s", got, want)
	}
	failing := newWorld(t, policy("p", `"auditAnnotations":[{"key":"k","valueExpression":"string(object.data.nothing)"}]`), bound("p", deny))
	if got := said(failing.validating.Validate(t.Context(), failing.configMap("a", "b"))); !strings.Contains(got, "no such key: nothing") {
		t.Errorf("an annotation that fails: %s", got)
	}
}

// What there is to see of deletes, connects and sub-resources.
func TestOperations(t *testing.T) {
	w := newWorld(t, policy("p", `"validations":[{"expression":"request.operation != 'DELETE' || object == null && oldObject.data.a != 'b'","messageExpression":"'deleted ' + oldObject.metadata.name"},{"expression":"request.operation != 'CONNECT' || object.command[0] != 'sh'","message":"no shells"}]`), bound("p", deny))
	r := w.configMap("a", "b")
	r.Operation, r.OldObject, r.Object = admission.Delete, r.Object, nil
	if got := said(w.validating.Validate(t.Context(), r)); got != "422 Invalid "+refused+"deleted x" {
		t.Errorf("a delete: %s", got)
	}
	exec := w.request("pods", &corev1.PodExecOptions{TypeMeta: metav1.TypeMeta{Kind: "PodExecOptions", APIVersion: "v1"}, Command: []string{"sh"}})
	exec.Operation, exec.Subresource, exec.Kind = admission.Connect, "exec", corev1.SchemeGroupVersion.WithKind("PodExecOptions")
	if got := said(w.validating.Validate(t.Context(), exec)); !strings.HasSuffix(got, "no shells") {
		t.Errorf("a connection: %s", got)
	}
	exec.Subresource = "attach"
	if err := w.validating.Validate(t.Context(), exec); err != nil {
		t.Errorf("a sub-resource that is not meant: %v", err)
	}
}

// TestDearMessages: those of what may be are not found out, so they cost nothing; for one there may be too
// little left, which is no verdict.
func TestDearMessages(t *testing.T) {
	const many = 30
	validation := func(expression, message string) string {
		return `{"expression":"` + expression + `","messageExpression":"` + message + `"}`
	}
	judge := func(more, validations string) string {
		w := newWorld(t, policy("p", more+`"validations":[`+validations+`]`), bound("p", deny))
		return said(w.validating.Validate(t.Context(), w.configMap("a", "b")))
	}
	const text = "'said ' + string(" + dear + ")"
	if got := judge("", strings.Repeat(validation("true", text)+",", many)+validation("false", text)); !strings.HasSuffix(got, "said true") {
		t.Errorf("behind messages of what may be: %s", got)
	}
	behind := func(n int) string { return strings.Repeat(validation(dear, text)+",", n) + validation("false", text) }
	const n = many - 1 // as many fit, and not one more
	if got := judge("", behind(n)); !strings.Contains(got, "failed messageExpression: validation failed due to running out of cost budget") {
		t.Errorf("behind %d validations: %s", n, got)
	}
	if got := judge(`"failurePolicy":"Ignore",`, behind(n)); got != "" {
		t.Errorf("behind %d validations, ignored: %s", n, got)
	}
}

// TestMessagesAskNoAuthorizer, nor do variables that they look at.
func TestMessagesAskNoAuthorizer(t *testing.T) {
	w := newWorld(t, policy("p", `"variables":[{"name":"v","expression":"authorizer.group('').resource('pods').check('get').allowed() ? 'yes' : 'no'"}],"validations":[{"expression":"variables.v == 'yes'","messageExpression":"'said ' + variables.v"}]`), bound("p", deny))
	if got := said(w.validating.Validate(t.Context(), w.configMap())); !strings.HasSuffix(got, "denied request: failed expression: variables.v == 'yes'") {
		t.Error(got)
	}
}
