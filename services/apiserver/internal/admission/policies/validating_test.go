package policies_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
)

// param returns a config map that serves as a parameter. labels and data are JSON objects.
func param(name, labels, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap",` +
		`"metadata":{"name":"` + name + `","namespace":"default","labels":` + labels + `},"data":` + data + `}`
}

// rejected is the beginning of the message of a request that the policy p rejects.
const rejected = `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: `

// expensiveExpression is true, and costs a thirtieth of a policy's budget. It evaluates fast: the
// cost of a search is the product of the lengths of both texts.
const expensiveExpression = `['0123456789012345'.replace('', '0123456789012345').replace('', '0123456789012345678')].all(a, a.contains(a))`

// TestValidatingPolicyAdmitsOrRejectsObject checks the response to a request for each kind of
// policy, binding and parameter.
func TestValidatingPolicyAdmitsOrRejectsObject(t *testing.T) {
	const ofConfigMaps = `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`
	const ofNodes = `"paramKind":{"apiVersion":"v1","kind":"Node"},`
	paramA := param("a", `{"set":"one"}`, `{"max":"1"}`)
	paramB := param("b", `{"set":"one"}`, `{"max":"2"}`)
	for _, test := range []struct {
		name            string
		policy, binding string   // fields of their specs
		stored          []string // parameters
		want            string   // code, reason and message for a config map with a=b, or "" if it is admitted
	}{
		{name: "validation is true", policy: `"validations":[{"expression":"object.data.a == 'b'"}]`, binding: deny},
		{
			name: "validation is false", policy: `"validations":[{"expression":"object.data.a == 'c'"}]`, binding: deny,
			want: "422 Invalid " + rejected + "failed expression: object.data.a == 'c'",
		},
		{
			name:    "message",
			policy:  `"validations":[{"expression":"false","message":" no ","reason":"Forbidden"}]`,
			binding: deny, want: "403 Forbidden " + rejected + "no",
		},
		{
			name:    "evaluated message",
			policy:  `"validations":[{"expression":"false","message":"no","messageExpression":"'not ' + object.data.a","reason":"RequestEntityTooLarge"}]`,
			binding: deny, want: "413 RequestEntityTooLarge " + rejected + "not b",
		},
		{
			name:    "failing message expression",
			policy:  `"validations":[{"expression":"false","message":"no","messageExpression":"object.data.nothing"}]`,
			binding: deny, want: "422 Invalid " + rejected + "no",
		},
		{
			name:    "message of several lines",
			policy:  `"validations":[{"expression":"false","message":"no","messageExpression":"'a\\nb'"}]`,
			binding: deny, want: "422 Invalid " + rejected + "no",
		},
		{
			name:    "first failing validation",
			policy:  `"validations":[{"expression":"true"},{"expression":"false","message":"one"},{"expression":"false","message":"two"}]`,
			binding: deny, want: "422 Invalid " + rejected + "one",
		},
		{
			name: "validation fails", policy: `"validations":[{"expression":"object.data.nothing == 'b'"}]`,
			binding: deny,
			want:    "422 Invalid " + rejected + "expression 'object.data.nothing == 'b'' resulted in error: no such key: nothing",
		},
		{
			name:    "validation fails, failurePolicy Ignore",
			policy:  `"failurePolicy":"Ignore","validations":[{"expression":"object.data.nothing == 'b'"}]`,
			binding: deny,
		},
		{
			name:   "validation is false, failurePolicy Ignore",
			policy: `"failurePolicy":"Ignore","validations":[{"expression":"false"}]`, binding: deny,
			want: "422 Invalid " + rejected + "failed expression: false",
		},
		{
			name: "compilation error", policy: `"validations":[{"expression":"nothing"}]`, binding: deny,
			want: "422 Invalid " + rejected +
				"compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing' (in container '')\n | nothing\n | ^",
		},
		{name: "compilation error, failurePolicy Ignore", policy: `"failurePolicy":"Ignore","validations":[{"expression":"nothing"}]`, binding: deny},
		{
			name: "cost budget exceeded",
			policy: `"validations":[` +
				strings.Repeat(`{"expression":"`+expensiveExpression+`"},`, 30) +
				`{"expression":"true"}]`,
			binding: deny,
			want:    "422 Invalid " + rejected + "validation failed due to running out of cost budget, no further validation rules will be run",
		},
		{
			name:    "match condition is false",
			policy:  `"matchConditions":[{"name":"c","expression":"request.userInfo.username == 'bob'"}],"validations":[{"expression":"false"}]`,
			binding: deny,
		},
		{
			name:    "match condition fails",
			policy:  `"matchConditions":[{"name":"c","expression":"object.data.nothing == 'b'"}],"validations":[{"expression":"true"}]`,
			binding: deny,
			want:    "422 Invalid " + rejected + "expression 'object.data.nothing == 'b'' resulted in error: no such key: nothing",
		},
		{
			name:    "variables",
			policy:  `"variables":[{"name":"v","expression":"object.data.a"},{"name":"w","expression":"variables.v + 'x'"}],"validations":[{"expression":"variables.w == 'bx'"}]`,
			binding: deny,
		},
		{
			name:    "failing variable that is not read",
			policy:  `"variables":[{"name":"v","expression":"object.data.nothing"}],"validations":[{"expression":"true || variables.v == ''"}]`,
			binding: deny,
		},
		{
			name:    "failing variable",
			policy:  `"variables":[{"name":"v","expression":"object.data.nothing"}],"validations":[{"expression":"variables.v == ''"}]`,
			binding: deny,
			want: "422 Invalid " + rejected +
				"expression 'variables.v == ''' resulted in error: composited variable \"v\" fails to evaluate: no such key: nothing",
		},
		{name: "namespaceObject", policy: `"validations":[{"expression":"namespaceObject.metadata.name == 'default'"}]`, binding: deny},
		{
			name:    "authorizer",
			policy:  `"validations":[{"expression":"authorizer.group('').resource('pods').check('get').allowed()"}]`,
			binding: deny,
			want:    "422 Invalid " + rejected + "failed expression: authorizer.group('').resource('pods').check('get').allowed()",
		},
		{
			name: "binding that does not match", policy: `"validations":[{"expression":"false"}]`,
			binding: deny + `,"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}`,
		},
		{
			name: "binding that excludes the object", policy: `"validations":[{"expression":"false"}]`,
			binding: deny +
				`,"matchResources":{"excludeResourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}`,
		},
		{
			name: "namespace that does not match", policy: `"validations":[{"expression":"false"}]`,
			binding: deny + `,"matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"other"}}}`,
		},

		{
			name:    "message that is too long",
			policy:  `"validations":[{"expression":"false","message":"no","messageExpression":"'` + strings.Repeat("x", 5<<10+1) + `'"}]`,
			binding: deny, want: "422 Invalid " + rejected + "no",
		},
		{
			name:    "validation with a message fails",
			policy:  `"validations":[{"expression":"object.data.nothing == 'b'","messageExpression":"'other'"}]`,
			binding: deny,
			want:    "422 Invalid " + rejected + "expression 'object.data.nothing == 'b'' resulted in error: no such key: nothing",
		},
		{
			name:    "reason Unauthorized",
			policy:  `"validations":[{"expression":"false","message":"no","reason":"Unauthorized"}]`,
			binding: deny, want: "401 Unauthorized " + rejected + "no",
		},

		{
			name: "paramRef for a policy without paramKind", policy: `"validations":[{"expression":"true"}]`,
			binding: deny + `,"paramRef":{"name":"a","parameterNotFoundAction":"Deny"}`,
		},
		{
			name:    "namespace for a cluster-scoped parameter",
			policy:  ofNodes + `"validations":[{"expression":"true"}]`,
			binding: deny + `,"paramRef":{"name":"a","namespace":"default","parameterNotFoundAction":"Deny"}`,
			want: "422 Invalid " + rejected +
				"failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
		},
		{
			name:    "cluster-scoped parameter",
			policy:  ofNodes + `"validations":[{"expression":"params.metadata.name == 'n'"}]`,
			binding: deny + `,"paramRef":{"name":"n","parameterNotFoundAction":"Deny"}`,
			stored:  []string{`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`},
		},
		{
			name: "paramRef with a name and a selector", policy: ofConfigMaps + `"validations":[{"expression":"true"}]`,
			binding: deny + `,"paramRef":{"name":"a","selector":{},"parameterNotFoundAction":"Allow"}`,
			stored:  []string{paramA},
			want:    "422 Invalid " + rejected + "failed to configure binding: paramRef.name and paramRef.selector are mutually exclusive",
		},
		{
			name: "paramRef without name and selector", policy: ofConfigMaps + `"validations":[{"expression":"true"}]`,
			binding: deny + `,"paramRef":{"parameterNotFoundAction":"Allow"}`,
			want:    "422 Invalid " + rejected + "failed to configure binding: one of name or selector must be provided",
		},
		{
			name: "paramRef with an invalid selector", policy: ofConfigMaps + `"validations":[{"expression":"true"}]`,
			binding: deny + `,"paramRef":{"selector":{"matchExpressions":[{"key":"a","operator":"Odd"}]},"parameterNotFoundAction":"Allow"}`,
			stored:  []string{paramA},
			want:    "422 Invalid " + rejected + `failed to configure binding: "Odd" is not a valid label selector operator`,
		},
		{
			name:    "invalid paramRef, failurePolicy Ignore",
			policy:  `"failurePolicy":"Ignore",` + ofConfigMaps + `"validations":[{"expression":"true"}]`,
			binding: deny + `,"paramRef":{"parameterNotFoundAction":"Allow"}`,
		},

		{
			name:    "parameter by name",
			policy:  ofConfigMaps + `"validations":[{"expression":"object.data.size() <= int(params.data.max)"}]`,
			binding: deny + `,"paramRef":{"name":"a","parameterNotFoundAction":"Deny"}`, stored: []string{paramA},
		},
		{
			name:    "parameter of another namespace",
			policy:  ofConfigMaps + `"validations":[{"expression":"params.data.max == '1'"}]`,
			binding: deny + `,"paramRef":{"name":"a","namespace":"other","parameterNotFoundAction":"Deny"}`,
			stored:  []string{paramA},
			want: "422 Invalid " + rejected +
				"failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
		},
		{
			name: "all selected parameters",
			policy: ofConfigMaps +
				`"validations":[{"expression":"params.data.max == '1'","messageExpression":"string(params.metadata.name)"}]`,
			binding: deny + `,"paramRef":{"selector":{"matchLabels":{"set":"one"}},"parameterNotFoundAction":"Deny"}`,
			stored:  []string{paramA, paramB}, want: "422 Invalid " + rejected + "b",
		},
		{
			name: "no parameter found, Deny", policy: ofConfigMaps + `"validations":[{"expression":"true"}]`,
			binding: deny + `,"paramRef":{"selector":{"matchLabels":{"set":"two"}},"parameterNotFoundAction":"Deny"}`,
			stored:  []string{paramA},
			want: "422 Invalid " + rejected +
				"failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
		},
		{
			name: "no parameter found, Allow", policy: ofConfigMaps + `"validations":[{"expression":"false"}]`,
			binding: deny + `,"paramRef":{"name":"c","parameterNotFoundAction":"Allow"}`, stored: []string{paramA},
		},
		{name: "paramKind without paramRef", policy: ofConfigMaps + `"validations":[{"expression":"params == null"}]`, binding: deny},
		{
			name:    "unknown kind of parameters",
			policy:  `"paramKind":{"apiVersion":"example.com/v1","kind":"Nothing"},"validations":[{"expression":"true"}]`,
			binding: deny + `,"paramRef":{"name":"c","parameterNotFoundAction":"Allow"}`,
			want:    "422 Invalid configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Nothing'",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, append(test.stored, validatingPolicy("p", test.policy), validatingBinding("p", test.binding))...)
			r := f.configMap("a", "b")
			if got := statusText(f.validating.Validate(t.Context(), r)); got != test.want {
				t.Errorf("Validate: got error\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestPolicyAddsAuditAnnotations checks that a policy adds audit annotations, also about a
// validation that is false under validationActions Audit. An expression that evaluates to null adds
// none.
func TestPolicyAddsAuditAnnotations(t *testing.T) {
	fixture := newFixture(
		t,
		validatingPolicy(
			"p",
			`"validations":[{"expression":"true"},{"expression":"object.data.a == 'c'","messageExpression":"'it is ' + object.data.a"}],`+
				`"auditAnnotations":[{"key":"k","valueExpression":"'size ' + string(object.data.size())"},{"key":"none","valueExpression":"null"}]`,
		),
		validatingBinding("p", `"validationActions":["Audit"]`),
		validatingPolicy(
			"q",
			`"failurePolicy":"Ignore","auditAnnotations":[{"key":"k","valueExpression":"string(object.data.nothing)"}]`,
		),
		validatingBinding("q", deny),
	)
	req := fixture.configMap("a", "b")
	if err := fixture.validating.Validate(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	want := `{"p/k":"size 1","validation.policy.admission.k8s.io/validation_failure":` +
		`"[{\"message\":\"it is b\",\"policy\":\"p\",\"binding\":\"p\",\"expressionIndex\":1,\"validationActions\":[\"Audit\"]}]"}`
	if got := asJSON(req.Annotations()); got != want {
		t.Errorf("got annotations\n%s\nwant\n%s", got, want)
	}
	failing := newFixture(
		t,
		validatingPolicy("p", `"auditAnnotations":[{"key":"k","valueExpression":"string(object.data.nothing)"}]`),
		validatingBinding("p", deny),
	)
	if got := statusText(failing.validating.Validate(t.Context(), failing.configMap("a", "b"))); !strings.Contains(got,
		"no such key: nothing") {
		t.Errorf("failing annotation: got %s, want it to contain %q", got, "no such key: nothing")
	}
}

// TestPoliciesApplyToDeletesAndConnects checks that policies see deletes, connects and
// subresources.
func TestPoliciesApplyToDeletesAndConnects(t *testing.T) {
	fixture := newFixture(t, validatingPolicy("p", `"validations":[`+
		`{"expression":"request.operation != 'DELETE' || object == null && oldObject.data.a != 'b'",`+
		`"messageExpression":"'deleted ' + oldObject.metadata.name"},`+
		`{"expression":"request.operation != 'CONNECT' || object.command[0] != 'sh'","message":"no shells"}]`), validatingBinding("p", deny))
	r := fixture.configMap("a", "b")
	r.Operation, r.OldObject, r.Object = admission.Delete, r.Object, nil
	if got, want := statusText(fixture.validating.Validate(t.Context(), r)), "422 Invalid "+rejected+"deleted x"; got != want {
		t.Errorf("delete: got error %s, want %s", got, want)
	}
	exec := fixture.request(
		"pods",
		&corev1.PodExecOptions{TypeMeta: metav1.TypeMeta{Kind: "PodExecOptions", APIVersion: "v1"}, Command: []string{"sh"}},
	)
	exec.Operation, exec.Subresource, exec.Kind = admission.Connect, "exec", corev1.SchemeGroupVersion.WithKind("PodExecOptions")
	if got := statusText(fixture.validating.Validate(t.Context(), exec)); !strings.HasSuffix(got, "no shells") {
		t.Errorf("connect: got %s, want the message: no shells", got)
	}
	exec.Subresource = "attach"
	if err := fixture.validating.Validate(t.Context(), exec); err != nil {
		t.Errorf("subresource that does not match: got %v, want no error", err)
	}
}

// TestMessageExpressionIsChargedOnlyForFailedValidation checks that messages of successful
// validations are not evaluated and cost nothing. A message that exceeds the remaining budget fails
// the validation.
func TestMessageExpressionIsChargedOnlyForFailedValidation(t *testing.T) {
	const enoughToExceedBudget = 30 // messages
	validation := func(expression, message string) string {
		return `{"expression":"` + expression + `","messageExpression":"` + message + `"}`
	}
	validate := func(specFields, validations string) string {
		f := newFixture(t, validatingPolicy("p", specFields+`"validations":[`+validations+`]`), validatingBinding("p", deny))
		return statusText(f.validating.Validate(t.Context(), f.configMap("a", "b")))
	}
	const expensiveMessage = "'said ' + string(" + expensiveExpression + ")"
	got := validate("", strings.Repeat(validation("true", expensiveMessage)+",", enoughToExceedBudget)+validation("false", expensiveMessage))
	if !strings.HasSuffix(got, "said true") {
		t.Errorf("after messages of successful validations: got %s, want the message: said true", got)
	}
	tooExpensiveAfter := func(n int) string {
		return strings.Repeat(validation(expensiveExpression, expensiveMessage)+",", n) + validation("false", expensiveMessage)
	}
	const n = enoughToExceedBudget - 1 // the budget suffices for these validations but not for a message after them
	if got := validate("", tooExpensiveAfter(n)); !strings.Contains(got,
		"failed messageExpression: validation failed due to running out of cost budget") {
		t.Errorf("after %d validations: got %s, want it to contain %q",
			n, got, "failed messageExpression: validation failed due to running out of cost budget")
	}
	if got := validate(`"failurePolicy":"Ignore",`, tooExpensiveAfter(n)); got != "" {
		t.Errorf("after %d validations, failurePolicy Ignore: got error %s, want none", n, got)
	}
}

// TestMessageExpressionsCannotAuthorize checks that neither messages nor the variables that they
// read can call the authorizer.
func TestMessageExpressionsCannotAuthorize(t *testing.T) {
	fixture := newFixture(
		t,
		validatingPolicy(
			"p",
			`"variables":[{"name":"v","expression":"authorizer.group('').resource('pods').check('get').allowed() ? 'yes' : 'no'"}],`+
				`"validations":[{"expression":"variables.v == 'yes'","messageExpression":"'said ' + variables.v"}]`,
		),
		validatingBinding("p", deny),
	)
	got := statusText(fixture.validating.Validate(t.Context(), fixture.configMap()))
	if want := "denied request: failed expression: variables.v == 'yes'"; !strings.HasSuffix(got, want) {
		t.Errorf("got error %q, want the suffix %q", got, want)
	}
}
