package policies_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
)

// mutatingPolicy returns a policy for config maps and pods. specFields are further fields of its
// spec.
func mutatingPolicy(name, specFields string) string {
	return groupAlpha + `MutatingAdmissionPolicy","metadata":{"name":"` + name + `"},"spec":{"reinvocationPolicy":"IfNeeded",` +
		`"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],` +
		`"resources":["configmaps","pods"]}]},` + specFields + `}}`
}

// mutatingBinding returns a binding of the policy with the same name. specFields are empty or
// further fields of its spec after a comma.
func mutatingBinding(name, specFields string) string {
	return groupAlpha + `MutatingAdmissionPolicyBinding","metadata":{"name":"` + name + `"},` +
		`"spec":{"policyName":"` + name + `"` + specFields + `}}`
}

// applyConfigurationMutation returns an element of a policy's mutations.
func applyConfigurationMutation(expression string) string {
	return `{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"` + expression + `"}}`
}

// jsonPatchMutation returns an element of a policy's mutations.
func jsonPatchMutation(expression string) string {
	return `{"patchType":"JSONPatch","jsonPatch":{"expression":"` + expression + `"}}`
}

// denied begins the errors of policy p.
const denied = `policy 'p' with binding 'p' denied request: `

// TestMutatingPolicyChangesOrRejectsObject checks how one mutating policy changes or rejects a
// config map with the data a=b.
func TestMutatingPolicyChangesOrRejectsObject(t *testing.T) {
	for _, test := range []struct {
		name            string
		policy, binding string // further fields of their specs
		want            string // data of the config map after the mutation, if wantErr is empty
		wantErr         string // part of the error
	}{
		{
			name:   "apply configuration",
			policy: `"mutations":[` + applyConfigurationMutation(`Object{data: {'b': object.data.a}}`) + `]`,
			want:   `{"a":"b","b":"b"}`,
		},
		{
			name: "JSON patch",
			policy: `"mutations":[` +
				jsonPatchMutation(`[JSONPatch{op: 'replace', path: '/data/a', value: 'x'}, JSONPatch{op: 'copy', from: '/data/a', path: '/data/c'}]`) +
				`]`,
			want: `{"a":"x","c":"x"}`,
		},
		{
			name: "mutation sees the result of an earlier one",
			policy: `"mutations":[` +
				applyConfigurationMutation(`Object{data: {'n': string(object.data.size())}}`) + `,` +
				applyConfigurationMutation(`Object{data: {'m': string(object.data.size())}}`) + `]`,
			want: `{"a":"b","m":"2","n":"1"}`,
		},
		{
			name: "variables are evaluated again after a mutation",
			policy: `"variables":[{"name":"v","expression":"string(object.data.size())"}],"mutations":[` +
				applyConfigurationMutation(`Object{data: {'n': variables.v}}`) + `,` +
				applyConfigurationMutation(`Object{data: {'m': variables.v}}`) + `]`,
			want: `{"a":"b","m":"2","n":"1"}`,
		},
		{
			name: "JSON patch with a failing test",
			policy: `"mutations":[` +
				jsonPatchMutation(`[JSONPatch{op: 'test', path: '/data/a', value: 'x'}, JSONPatch{op: 'remove', path: '/data/a'}]`) +
				`]`,
			want: `{"a":"b"}`,
		},
		{
			name:   "JSON patch without operations",
			policy: `"mutations":[` + jsonPatchMutation(`object.data.size() > 5 ? [JSONPatch{op: 'remove', path: '/data'}] : []`) + `]`,
			want:   `{"a":"b"}`,
		},
		{
			name: "match condition is false",
			policy: `"matchConditions":[{"name":"c","expression":"false"}],"mutations":[` +
				applyConfigurationMutation(`Object{data: {'b': 'c'}}`) + `]`,
			want: `{"a":"b"}`,
		},
		{
			name:    "binding that does not match",
			binding: `,"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}`,
			policy:  `"mutations":[` + applyConfigurationMutation(`Object{data: {'b': 'c'}}`) + `]`,
			want:    `{"a":"b"}`,
		},
		{
			name: "match condition fails",
			policy: `"matchConditions":[{"name":"c","expression":"object.data.nothing == ''"}],"mutations":[` +
				applyConfigurationMutation(`Object{}`) + `]`,
			wantErr: "403 Invalid " + denied + "expression 'object.data.nothing == ''' resulted in error: no such key: nothing",
		},
		{
			name:    "expression fails",
			policy:  `"mutations":[` + applyConfigurationMutation(`Object{data: {'b': object.data.nothing}}`) + `]`,
			wantErr: "403 Invalid " + denied + "expression 'Object{data: {'b': object.data.nothing}}' resulted in error: no such key: nothing",
		},
		{
			name: "ignored error before another mutation",
			policy: `"failurePolicy":"Ignore","mutations":[` +
				applyConfigurationMutation(`Object{data: {'b': object.data.nothing}}`) + `,` +
				applyConfigurationMutation(`Object{data: {'b': 'c'}}`) + `]`,
			want: `{"a":"b","b":"c"}`,
		},
		{
			name:   "apply configuration with an unknown field",
			policy: `"mutations":[` + applyConfigurationMutation(`Object{nothing: 1}`) + `]`,
			wantErr: "403 Invalid " + denied +
				"error applying patch: failed to convert patch object to typed object: .nothing: field not declared in schema",
		},
		{
			name:    "JSON patch with an unknown field",
			policy:  `"mutations":[` + jsonPatchMutation(`[JSONPatch{op: 'add', path: '/nothing', value: 1}]`) + `]`,
			wantErr: `403 Invalid ` + denied + `JSON Patch: strict decoding error: unknown field "nothing"`,
		},
		{
			name:   "value has the wrong type",
			policy: `"mutations":[` + applyConfigurationMutation(`Object{data: {'a': 1}}`) + `]`,
			wantErr: "403 Invalid " + denied +
				"error applying patch: failed to convert patch object to typed object: .data.a: expected string, got &value.valueUnstructured{Value:1}",
		},
		{
			name:    "object type of another field",
			policy:  `"mutations":[` + applyConfigurationMutation(`Object{metadata: Object.spec{}}`) + `]`,
			wantErr: `unexpected type name "Object.spec", expected "Object.metadata"`,
		},
		{
			name: "JSON patch changes the kind",
			policy: `"mutations":[` +
				jsonPatchMutation(`[JSONPatch{op: 'remove', path: '/data'}, JSONPatch{op: 'replace', path: '/kind', value: 'Namespace'}]`) +
				`]`,
			wantErr: "the kind changed from /v1, Kind=ConfigMap to /v1, Kind=Namespace",
		},
		{
			name: "apply configuration with an atomic list",
			policy: `"mutations":[` +
				applyConfigurationMutation(`Object{metadata: Object.metadata{managedFields: [Object.metadata.managedFields{manager: 'm'}]}}`) +
				`]`,
			wantErr: "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .metadata.managedFields",
		},
		{
			name: "compilation error", policy: `"mutations":[` + applyConfigurationMutation(`Object{`) + `]`,
			wantErr: "403 Invalid " + denied + "compilation error: ",
		},
		{
			name: "cost budget exceeded",
			policy: `"mutations":[` +
				applyConfigurationMutation(`Object{data: {'a': [0,1,2,3,4,5,6,7,8,9].map(a, [0,1,2,3,4,5,6,7,8,9].map(b, `+
					`[0,1,2,3,4,5,6,7,8,9].map(c, [0,1,2,3,4,5,6,7,8,9].map(d, [0,1,2,3,4,5,6,7,8,9].map(e, `+
					`[0,1,2,3,4,5,6,7,8,9].map(f, 1)))))).size() > 0 ? 'x' : 'y'}}`) +
				`]`,
			wantErr: "operation cancelled: actual cost limit exceeded",
		},
		{
			name: "value too large",
			policy: largeVariables + `"mutations":[` +
				applyConfigurationMutation(`Object{data: {'a': variables.e}}`) + `]`,
			wantErr: "the value is too large",
		},
		{
			name: "value in a JSON patch too large",
			policy: largeVariables + `"mutations":[` +
				jsonPatchMutation(`[JSONPatch{op: 'add', path: '/data/b', value: 'c'}, JSONPatch{op: 'add', path: '/data/c', value: variables.e}]`) +
				`]`,
			wantErr: "the value is too large",
		},
		{
			name:    "parameter does not exist",
			policy:  `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"mutations":[` + applyConfigurationMutation(`Object{}`) + `]`,
			binding: `,"paramRef":{"name":"x"}`,
			wantErr: "403 Forbidden " + denied +
				"failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
		},
		{
			name:    "parameter kind does not exist",
			policy:  `"paramKind":{"apiVersion":"example.com/v1","kind":"No"},"mutations":[` + applyConfigurationMutation(`Object{}`) + `]`,
			wantErr: `403 Forbidden policy "p" denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=No'`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, mutatingPolicy("p", test.policy), mutatingBinding("p", test.binding))
			req := f.configMap("a", "b")
			got := statusText(f.mutating.Admit(t.Context(), req))
			if test.wantErr != "" {
				if !strings.Contains(got, test.wantErr) {
					t.Errorf("Admit: got error\n%s\nwant it to contain\n%s", got, test.wantErr)
				}
				return
			}
			if data := asJSON(req.Object.(*corev1.ConfigMap).Data); got != "" || data != test.want {
				t.Errorf("Admit: got data %s and error %q, want data %s and no error", data, got, test.want)
			}
		})
	}
}

// TestMutationMergesContainersByName checks that keyed lists are merged by key, and new items are
// defaulted.
func TestMutationMergesContainersByName(t *testing.T) {
	mutation := applyConfigurationMutation(`Object{spec: Object.spec{` +
		`containers: object.spec.containers.map(c, ` +
		`Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: 'A', value: 'b'}]}), ` +
		`initContainers: [Object.spec.initContainers{name: 'i', image: 'x'}]}}`)
	fixture := newFixture(t, mutatingPolicy("p", `"mutations":[`+mutation+`]`), mutatingBinding("p", ""))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "B", Value: "c"}}}},
		},
	}
	if err := fixture.mutating.Admit(t.Context(), fixture.request("pods", pod)); err != nil {
		t.Fatal(err)
	}
	got, want := asJSON(pod.Spec.Containers[0].Env), `[{"name":"B","value":"c"},{"name":"A","value":"b"}]`
	if got != want || pod.Spec.Containers[0].Image != "i" {
		t.Errorf("got environment %s and image %q, want %s and i", got, pod.Spec.Containers[0].Image, want)
	}
	if i := pod.Spec.InitContainers; len(i) != 1 || i[0].Image != "x" || i[0].TerminationMessagePath == "" {
		t.Errorf("got init containers %s, want one with image x and a default terminationMessagePath", asJSON(i))
	}
}

// TestNumberOutsideFieldRangeIsRejected checks that a number that does not fit into a field is
// rejected like a value of another type.
func TestNumberOutsideFieldRangeIsRejected(t *testing.T) {
	const notInt32 = "403 Invalid " + denied + "error applying patch: failed to convert patch object to typed object: "
	for number, wantErr := range map[string]string{
		"2147483647":  "",
		"2147483648":  notInt32,
		"-2147483648": "",
		"-2147483649": notInt32,
		"99999999999": notInt32,
		"7.0":         "",
		"1e30":        notInt32,
		"1.5":         notInt32,
	} {
		fixture := newFixture(
			t,
			mutatingPolicy("p", `"mutations":[`+applyConfigurationMutation(`Object{spec: Object.spec{priority: `+number+`}}`)+`]`),
			mutatingBinding("p", ""),
		)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"}}
		got := statusText(fixture.mutating.Admit(t.Context(), fixture.request("pods", pod)))
		if wantErr == "" && got != "" || !strings.HasPrefix(got, wantErr) {
			t.Errorf("priority %s: got error %q, want %q", number, got, wantErr)
		}
		if isSet := pod.Spec.Priority != nil; isSet != (wantErr == "") {
			t.Errorf("priority %s: got %s, want it set unless the policy fails", number, asJSON(pod.Spec.Priority))
		}
	}
}

// TestMutationsIgnoreDeletes checks that a delete has no object to mutate.
func TestMutationsIgnoreDeletes(t *testing.T) {
	fixture := newFixture(
		t,
		mutatingPolicy("p", `"mutations":[`+applyConfigurationMutation(`Object{data: {'b': object.data.a}}`)+`]`),
		mutatingBinding("p", ""),
	)
	r := fixture.configMap("a", "b")
	r.Operation, r.OldObject, r.Object = admission.Delete, r.Object, nil
	if err := fixture.mutating.Admit(t.Context(), r); err != nil {
		t.Errorf("delete: got error %v, want none", err)
	}
}

// TestPolicyRunsAgainAfterLaterChange checks that a policy with reinvocationPolicy IfNeeded runs
// again after a later change.
func TestPolicyRunsAgainAfterLaterChange(t *testing.T) {
	count := func(key string) string {
		return `"mutations":[` + applyConfigurationMutation(`Object{data: {'`+key+`': string(object.data.size())}}`) + `]`
	}
	once := strings.Replace(mutatingPolicy("b", count("b")), "IfNeeded", "Never", 1)
	f := newFixture(t, mutatingPolicy("a", count("a")), mutatingBinding("a", ""), once, mutatingBinding("b", ""))
	req := f.configMap("x", "y")
	if err := admission.NewChain(nil, admission.Plugin{Name: "p", Plugin: f.mutating}).Mutate(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got, want := asJSON(req.Object.(*corev1.ConfigMap).Data), `{"a":"3","b":"2","x":"y"}`; got != want {
		t.Errorf("got data %s, want %s", got, want)
	}
}
