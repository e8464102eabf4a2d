package policies_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// withBothPlugins calls check once for each plugin. admit passes a request to the plugin.
func withBothPlugins(
	ctx context.Context,
	plugins *fixture,
	check func(plugin string, admit func(*admission.Request) error),
) {
	check("validating", func(r *admission.Request) error { return plugins.validating.Validate(ctx, r) })
	check("mutating", func(r *admission.Request) error { return plugins.mutating.Admit(ctx, r) })
}

// hasWantedError reports whether a text is empty if want is, and contains want otherwise.
func hasWantedError(got, want string) bool {
	return (got == "") == (want == "") && strings.Contains(got, want)
}

// Fields of policies.
const (
	denyingValidation  = `"validations":[{"expression":"false"}]`
	removeDataMutation = `"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'remove', path: '/data'}]"}}]`
	invalidSelector    = `"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Odd"}]}`
	excludeConfigMaps  = `"excludeResourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]`
	unknownParamKind   = `"paramKind":{"apiVersion":"example.com/v1","kind":"No"},`
)

// withMatchConstraint adds a field to the match constraints of a policy.
func withMatchConstraint(policy, field string) string {
	return strings.Replace(policy, `"matchConstraints":{`, `"matchConstraints":{`+field+`,`, 1)
}

// TestUnknownPoliciesRejectRequests checks that before the policies are loaded, every request is
// rejected.
func TestUnknownPoliciesRejectRequests(t *testing.T) {
	const notYet = `configmaps "x" is forbidden: not yet ready to handle request`
	stored := []string{
		validatingPolicy("p", `"validations":[{"expression":"true"}]`),
		validatingBinding("p", deny),
		mutatingPolicy("p", `"mutations":[`+applyConfigurationMutation(`Object{}`)+`]`),
		mutatingBinding("p", ""),
	}
	failingWait := func(context.Context) error { return errors.New("behind") }
	failDecoding := func(*objects.Entry) (metav1.Object, error) { return nil, errors.New("corrupt") }
	for name, test := range map[string]struct {
		change func(*dependencies)
		want   string // the error; "" for none
	}{
		"known":      {change: func(*dependencies) {}, want: ""},
		"not loaded": {change: func(s *dependencies) { s.Ready = func() bool { return false } }, want: notYet},
		"loaded while a request waits": {change: func(s *dependencies) {
			isLoaded := false
			s.Ready = func() bool { return isLoaded }
			s.bindings.WaitForWrites = func(context.Context) error { isLoaded = true; return nil }
		}, want: ""},
		"policies stale":  {change: func(s *dependencies) { s.policies.WaitForWrites = failingWait }, want: "behind"},
		"bindings stale":  {change: func(s *dependencies) { s.bindings.WaitForWrites = failingWait }, want: "behind"},
		"policy corrupt":  {change: func(s *dependencies) { s.policies.Decode = failDecoding }, want: notYet},
		"binding corrupt": {change: func(s *dependencies) { s.bindings.Decode = failDecoding }, want: notYet},
	} {
		fixture := newFixtureWith(t, test.change, stored...)
		withBothPlugins(t.Context(), fixture, func(plugin string, admit func(*admission.Request) error) {
			for attempt := range 2 { // the second request finds what the first one compiled
				got := ""
				if err := admit(fixture.configMap("a", "b")); err != nil {
					got = err.Error()
				}
				if got != test.want {
					t.Errorf("%s, %s plugin, request %d: got error %q, want %q", name, plugin, attempt, got, test.want)
				}
			}
		})
	}
}

// TestPoliciesDoNotApplyToExemptRequests checks that policies apply neither to writes during
// startup, nor to policies and bindings, nor to reviews, which are not stored.
func TestPoliciesDoNotApplyToExemptRequests(t *testing.T) {
	denyEverything := strings.NewReplacer(
		`"resources":["configmaps","pods","pods/exec","namespaces"]`, `"resources":["*"]`,
		`"apiVersions":["v1"]`, `"apiVersions":["*"]`,
	).Replace(validatingPolicy("p", denyingValidation))
	fixture := newFixture(t, denyEverything, validatingBinding("p", deny))
	if err := fixture.validating.Validate(requesttest.WithStartup(t.Context()), fixture.configMap()); err != nil {
		t.Errorf("config map during startup: got error %v, want none", err)
	}
	for _, test := range []struct {
		group, version, resource string
		wantRejected             bool
	}{
		{group: "admissionregistration.k8s.io", version: "v1", resource: "validatingadmissionpolicies"},
		{group: "admissionregistration.k8s.io", version: "v1", resource: "validatingadmissionpolicybindings"},
		{group: "admissionregistration.k8s.io", version: "v1alpha1", resource: "mutatingadmissionpolicies"},
		{group: "admissionregistration.k8s.io", version: "v1alpha1", resource: "mutatingadmissionpolicybindings"},
		{group: "admissionregistration.k8s.io", version: "v1", resource: "validatingwebhookconfigurations", wantRejected: true},
		{group: "authorization.k8s.io", version: "v1", resource: "subjectaccessreviews"},
		{group: "authentication.k8s.io", version: "v1", resource: "tokenreviews"},
		{group: "", version: "v1", resource: "nodes", wantRejected: true},
	} {
		kind := fixture.catalog.Resource(schema.GroupVersionResource{Group: test.group, Version: test.version, Resource: test.resource})
		err := fixture.validating.Validate(t.Context(), &admission.Request{
			Operation: admission.Create,
			Resource:  kind,
			Kind:      kind.GVK(),
			Name:      "x",
			Object:    &corev1.Node{},
			Options:   &metav1.CreateOptions{},
		})
		if (err != nil) != test.wantRejected {
			t.Errorf("%s: got error %v, want an error: %t", test.resource, err, test.wantRejected)
		}
	}
}

// TestInvalidPoliciesRejectMatchingRequests checks that an invalid policy rejects only requests
// that match it, and only if failurePolicy is Fail.
func TestInvalidPoliciesRejectMatchingRequests(t *testing.T) {
	const selector = `namespaceSelector: "Odd" is not a valid label selector operator`
	withBrokenCompiler := func(s *dependencies) {
		s.Programs = func() (*expressions.Programs, *expressions.Compiler, error) {
			p, c, _ := programs(t)
			return p, c, errors.New("broken")
		}
	}
	for name, test := range map[string]struct {
		change       func(*dependencies)
		match        string // fields of the policy's match constraints
		specFields   string // further fields of the policy's spec, each with a comma after it
		bindingMatch string // fields of the binding's match resources
		isUnbound    bool
		want         string // part of the error if failurePolicy is Fail; "" for no error
	}{
		"selector of a policy":                              {match: invalidSelector, want: selector},
		"selector of a policy that does not match":          {match: invalidSelector + "," + excludeConfigMaps},
		"policy without binding":                            {match: invalidSelector, isUnbound: true},
		"selector of a binding":                             {bindingMatch: invalidSelector, want: "failed to configure binding: " + selector},
		"selector of a binding that does not match":         {bindingMatch: invalidSelector + "," + excludeConfigMaps},
		"unknown kind of parameters":                        {specFields: unknownParamKind, want: "failed to find resource"},
		"unknown kind of parameters, policy does not match": {specFields: unknownParamKind, match: excludeConfigMaps},
		"no compiler":                                       {change: withBrokenCompiler, want: "broken"},
		"policy does not match":                             {match: excludeConfigMaps},
		"binding does not match":                            {bindingMatch: excludeConfigMaps},
	} {
		for _, failurePolicy := range []string{"Fail", "Ignore"} {
			specFields, want := test.specFields+`"failurePolicy":"`+failurePolicy+`",`, test.want
			if failurePolicy == "Ignore" {
				want = ""
			}
			validating := validatingPolicy("p", specFields+denyingValidation)
			mutating := mutatingPolicy("p", specFields+removeDataMutation)
			if test.match != "" {
				validating, mutating = withMatchConstraint(validating, test.match), withMatchConstraint(mutating, test.match)
			}
			stored := []string{validating, mutating}
			if !test.isUnbound {
				bindingFields := ""
				if test.bindingMatch != "" {
					bindingFields = `,"matchResources":{` + test.bindingMatch + `}`
				}
				stored = append(stored, validatingBinding("p", deny+bindingFields), mutatingBinding("p", bindingFields))
			}
			change := test.change
			if change == nil {
				change = func(*dependencies) {}
			}
			f := newFixtureWith(t, change, stored...)
			withBothPlugins(t.Context(), f, func(plugin string, admit func(*admission.Request) error) {
				req := f.configMap("a", "b")
				got := statusText(admit(req))
				isChanged := len(req.Object.(*corev1.ConfigMap).Data) != 1
				if !hasWantedError(got, want) || isChanged {
					t.Errorf("%s, %s policy, failurePolicy %s: got error %q and object %v, want error %q and no change",
						name, plugin, failurePolicy, got, req.Object, want)
				}
			})
		}
	}
}

// programs returns new programs and their compiler.
func programs(t *testing.T) (*expressions.Programs, *expressions.Compiler, error) {
	t.Helper()
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	return expressions.NewPrograms(compiler), compiler, nil
}

// TestServerErrorsIgnoreFailurePolicy checks that a failed namespace lookup, a canceled request and
// throttling reject the request whatever the failurePolicy.
func TestServerErrorsIgnoreFailurePolicy(t *testing.T) {
	const set = `"failurePolicy":"Ignore","paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`
	const paramRef = `,"paramRef":{"name":"a","parameterNotFoundAction":"Allow"}`
	stored := []string{
		validatingPolicy("p", set+`"validations":[{"expression":"true"}]`), validatingBinding("p", deny+paramRef),
		mutatingPolicy("p", set+`"mutations":[`+applyConfigurationMutation(`Object{}`)+`]`), mutatingBinding("p", paramRef),
		param("a", `{}`, `{"max":"1"}`),
	}
	found := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	for name, test := range map[string]struct {
		change func(s *dependencies, cancel func()) // cancel cancels the request
		want   string                               // part of the error
	}{
		"no error": {change: func(*dependencies, func()) {}, want: ""},
		"namespace lookup fails": {change: func(s *dependencies, _ func()) {
			s.Namespace = func(context.Context, string) (*corev1.Namespace, error) { return nil, errors.New("no answer") }
		}, want: "no answer"},
		"canceled before reading parameters": {change: func(s *dependencies, cancel func()) {
			s.Parameters.WaitForWrites = func(ctx context.Context, _ *apiset.Resource) error { cancel(); return ctx.Err() }
		}, want: "context canceled"},
		"canceled before decoding parameters": {change: func(s *dependencies, cancel func()) {
			s.Namespace = func(context.Context, string) (*corev1.Namespace, error) { cancel(); return found, nil }
		}, want: "context canceled"},
		"throttled": {change: func(s *dependencies, _ func()) {
			s.Parameters.WaitForWrites = func(context.Context, *apiset.Resource) error { return apierrors.NewTooManyRequests("wait", 1) }
		}, want: "wait"},
	} {
		for _, tested := range []string{"validating", "mutating"} {
			// Each plugin has its own context, because the change may cancel it.
			ctx, cancel := context.WithCancel(t.Context())
			fixture := newFixtureWith(t, func(s *dependencies) { test.change(s, cancel) }, stored...)
			withBothPlugins(ctx, fixture, func(plugin string, admit func(*admission.Request) error) {
				if plugin != tested {
					return
				}
				if got := statusText(admit(fixture.configMap("a", "b"))); !hasWantedError(got, test.want) {
					t.Errorf("%s, %s policy: got error %q, want one that contains %q, or none if that is empty",
						name, plugin, got, test.want)
				}
			})
			cancel()
		}
	}
}

// TestCorruptParameterFollowsFailurePolicy checks that a corrupt parameter is an error of
// the policy.
func TestCorruptParameterFollowsFailurePolicy(t *testing.T) {
	decodeAsPod := func(d *dependencies) {
		kind := d.Parameters.Kind
		d.Parameters.Kind = func(gvk schema.GroupVersionKind) *apiset.Resource {
			out := *kind(gvk)
			out.Coder = kind(corev1.SchemeGroupVersion.WithKind("Pod")).Coder
			return &out
		}
	}
	const paramRef = `,"paramRef":{"name":"a","parameterNotFoundAction":"Allow"}`
	for failurePolicy, want := range map[string]string{"Fail": "failed to configure binding: read ", "Ignore": ""} {
		fields := `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"failurePolicy":"` + failurePolicy + `",`
		fixture := newFixtureWith(t, decodeAsPod,
			validatingPolicy("p", fields+`"validations":[{"expression":"true"}]`), validatingBinding("p", deny+paramRef),
			mutatingPolicy("p", fields+removeDataMutation), mutatingBinding("p", paramRef), param("a", `{}`, `{"max":"1"}`))
		withBothPlugins(t.Context(), fixture, func(plugin string, admit func(*admission.Request) error) {
			req := fixture.configMap("a", "b")
			if got := statusText(admit(req)); !hasWantedError(got, want) {
				t.Errorf("%s policy, failurePolicy %s: got error %q, want one that contains %q, or none if that is empty",
					plugin, failurePolicy, got, want)
			}
			if data := req.Object.(*corev1.ConfigMap).Data; len(data) != 1 {
				t.Errorf("%s policy, failurePolicy %s: got data %v, want it unchanged, with one key", plugin, failurePolicy, data)
			}
		})
	}
}

// TestClusterScopedRequestsHaveNoNamespaceObject checks that namespaceObject is null for
// cluster-scoped objects and for namespaces. Namespaced parameters require a namespaced request.
func TestClusterScopedRequestsHaveNoNamespaceObject(t *testing.T) {
	fixture := newFixtureWith(t, func(s *dependencies) {
		s.Namespace = func(_ context.Context, name string) (*corev1.Namespace, error) {
			return nil, fmt.Errorf("unexpected lookup of namespace %q", name)
		}
	}, validatingPolicy("p", `"validations":[{"expression":"namespaceObject == null"}]`), validatingBinding("p", deny))
	createNamespace := fixture.request("namespaces", &corev1.Namespace{})
	clusterScoped := fixture.configMap("a", "b")
	clusterScoped.Namespace = ""
	for _, r := range []*admission.Request{createNamespace, clusterScoped} {
		if err := fixture.validating.Validate(t.Context(), r); err != nil {
			t.Errorf("namespaceObject for %s: got %v, want it null", r.Resource.Resource, err)
		}
	}
	configMaps := newFixture(
		t,
		validatingPolicy("p", `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"true"}]`),
		validatingBinding("p", deny+`,"paramRef":{"name":"a","parameterNotFoundAction":"Allow"}`),
	)
	got := statusText(configMaps.validating.Validate(t.Context(), clusterScoped))
	if !strings.Contains(got, "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources") {
		t.Errorf("namespaced parameter: got %s, want it rejected for a request without namespace", got)
	}
	nodes := newFixture(
		t,
		validatingPolicy("p", `"paramKind":{"apiVersion":"v1","kind":"Node"},"validations":[{"expression":"params.metadata.name == 'n'"}]`),
		validatingBinding(
			"p",
			deny+`,"paramRef":{"name":"n","parameterNotFoundAction":"Deny"}`,
		),
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`,
	)
	if err := nodes.validating.Validate(t.Context(), clusterScoped); err != nil {
		t.Errorf("cluster-scoped parameter: got %v, want no error", err)
	}
}

// TestAuditAnnotationsAreBounded checks that the cost and the length of annotations are bounded, and
// blank ones are dropped.
func TestAuditAnnotationsAreBounded(t *testing.T) {
	fixture := newFixture(t, validatingPolicy("p", `"auditAnnotations":[{"key":"long","valueExpression":"string(object.data.a)"},`+
		`{"key":"none","valueExpression":"' '"}]`), validatingBinding("p", deny))
	req := fixture.configMap("a", strings.Repeat("x", 11<<10))
	if err := fixture.validating.Validate(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if annotations := req.Annotations(); len(annotations) != 1 || len(annotations["p/long"]) != 10<<10 {
		t.Errorf("got %d annotations, the long one of %d bytes, want 1 of 10240 bytes", len(annotations), len(annotations["p/long"]))
	}
	expensive := strings.Repeat(`{"key":"k","valueExpression":"string(`+expensiveExpression+`)"},`, 30)
	fixture = newFixture(t, validatingPolicy("p", `"auditAnnotations":[`+expensive+`{"key":"l","valueExpression":"''"}]`),
		validatingBinding("p", `"validationActions":["Warn"]`))
	ctx, warnings := requesttest.WithWarnings(t.Context())
	if err := fixture.validating.Validate(ctx, fixture.configMap("a", "b")); err != nil ||
		!strings.Contains(fmt.Sprint(warnings.Headers()), "running out of cost budget") {
		t.Errorf("expensive annotations: got error %v and warnings %q, want no error and a warning: running out of cost budget",
			err, warnings.Headers())
	}
}

// largeVariables defines the variables a to e. Each is a multiple of the one before, and e is
// too large for an object.
const largeVariables = `"variables":[{"name":"a","expression":"'0123456789012345'"},` +
	`{"name":"b","expression":"variables.a.replace('', variables.a)"},` +
	`{"name":"c","expression":"variables.b.replace('', variables.b)"},` +
	`{"name":"d","expression":"[variables.c, variables.c, variables.c, variables.c, variables.c, variables.c, variables.c, variables.c]"},` +
	`{"name":"e","expression":"[variables.d, variables.d, variables.d, variables.d, variables.d, variables.d, variables.d, variables.d]"}],`

// TestOversizedMutationsAreRejected checks that a value that is too large and a patch with too many
// operations reject the request.
func TestOversizedMutationsAreRejected(t *testing.T) {
	largePatch := jsonPatchMutation(`[JSONPatch{op: 'add', path: '/data/b', value: variables.e}]`)
	fixture := newFixture(t, mutatingPolicy("p", largeVariables+`"mutations":[`+largePatch+`]`), mutatingBinding("p", ""))
	if got := statusText(fixture.mutating.Admit(t.Context(), fixture.configMap("a", "b"))); !strings.Contains(got, "the value is too large") {
		t.Errorf("large value: got %q, want it to contain %q", got, "the value is too large")
	}
	operationPerKey := jsonPatchMutation(`object.data.map(k, JSONPatch{op: 'test', path: '/kind', value: 'ConfigMap'})`)
	fixture = newFixture(t, mutatingPolicy("p", `"mutations":[`+operationPerKey+`]`), mutatingBinding("p", ""))
	var data []string
	for i := range 10_001 {
		data = append(data, fmt.Sprint("k", i), "")
	}
	got := statusText(fixture.mutating.Admit(t.Context(), fixture.configMap(data...)))
	if !strings.Contains(got, "10001 operations, at most 10000 are allowed") {
		t.Errorf("many operations: got %q, want it to contain %q", got, "10001 operations, at most 10000 are allowed")
	}
}

// TestNoOpMutationsCauseNoReinvocation checks that plugins run again only if the object changed.
func TestNoOpMutationsCauseNoReinvocation(t *testing.T) {
	// The first run calls the next plugin once. A change lets both plugins run again.
	for value, wantCalls := range map[string]int{"b": 1, "c": 2} {
		fixture := newFixture(
			t,
			mutatingPolicy("p", `"mutations":[`+applyConfigurationMutation(`Object{data: {'a': '`+value+`'}}`)+`]`),
			mutatingBinding("p", ""),
		)
		calls := 0
		chain := admission.NewChain(
			nil,
			admission.Plugin{Name: "p", Plugin: fixture.mutating},
			admission.Plugin{Name: "c", Plugin: counter{&calls}},
		)
		if err := chain.Mutate(t.Context(), fixture.configMap("a", "b")); err != nil || calls != wantCalls {
			t.Errorf("mutation of a=b to a=%s: got error %v and %d calls of the next plugin, want no error and %d calls",
				value, err, calls, wantCalls)
		}
	}
}

// counter is a mutating plugin that counts its calls.
type counter struct{ calls *int }

func (c counter) Admit(context.Context, *admission.Request) error { *c.calls++; return nil }

// TestPolicySeesMatchedVersion checks that a policy sees the version that it matches, and its
// mutations are converted back. A failing conversion rejects the request whatever the
// failurePolicy.
func TestPolicySeesMatchedVersion(t *testing.T) {
	const rules = `"matchConstraints":{"resourceRules":[{"apiGroups":["autoscaling"],"apiVersions":["v2"],"operations":["*"],"resources":["*"]}]},"failurePolicy":"Ignore",`
	// matchOnlyV2 replaces the match constraints of a policy with rules.
	matchOnlyV2 := func(policyJSON string) string {
		start := strings.Index(policyJSON, `"matchConstraints"`)
		end := start + strings.Index(policyJSON[start:], `]},`) + len(`]},`)
		return policyJSON[:start] + rules + policyJSON[end:]
	}
	setReplicas := mutatingPolicy("p", `"mutations":[`+applyConfigurationMutation(`Object{spec: Object.spec{maxReplicas: 7}}`)+`]`)
	requireV2 := validatingPolicy("p", `"validations":[{"expression":"request.kind.version == 'v2'"}]`)
	for name, test := range map[string]struct {
		withoutV1      bool // v1 cannot be converted from the start
		withoutV1Later bool // v1 cannot be converted after the mutation
		wantRejected   bool // by the mutating plugin
	}{
		"converted":             {},
		"conversion fails":      {withoutV1: true, wantRejected: true},
		"conversion back fails": {withoutV1Later: true, wantRejected: true},
	} {
		withoutV1 := test.withoutV1
		fixture := newFixtureWith(t, func(s *dependencies) {
			all := s.Parameters.Kind
			s.Family = func(*registry.Kind) (family []*apiset.Resource) {
				for _, gv := range []schema.GroupVersion{autoscalingv1.SchemeGroupVersion, autoscalingv2.SchemeGroupVersion} {
					if gv.Version == "v2" || !withoutV1 {
						family = append(family, all(gv.WithKind("HorizontalPodAutoscaler")))
					}
				}
				return family
			}
			configure := s.Configure
			s.Configure = func(of schema.GroupVersionKind, obj runtime.Object, configuration map[string]any) (map[string]any, error) {
				withoutV1 = test.withoutV1 || test.withoutV1Later
				return configure(of, obj, configuration)
			}
		}, matchOnlyV2(setReplicas), mutatingBinding("p", ""), matchOnlyV2(requireV2), validatingBinding("p", deny))
		kind := fixture.catalog.Resource(autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers"))
		autoscaler := &autoscalingv1.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: "default"},
			Spec:       autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3},
		}
		req := &admission.Request{
			Operation: admission.Create, Resource: kind, Kind: kind.GVK(), Namespace: "default", Name: "h",
			Options: &metav1.CreateOptions{}, Object: autoscaler,
		}
		if err := fixture.validating.Validate(t.Context(), req); (err != nil) != test.withoutV1 {
			t.Errorf("%s: Validate: got error %v, want an error: %t", name, err, test.withoutV1)
		}
		err := fixture.mutating.Admit(t.Context(), req)
		wantReplicas := int32(7)
		if test.wantRejected {
			wantReplicas = 3
		}
		if (err != nil) != test.wantRejected || autoscaler.Spec.MaxReplicas != wantReplicas {
			t.Errorf("%s: Admit: got error %v and %d replicas, want an error: %t and %d replicas",
				name, err, autoscaler.Spec.MaxReplicas, test.wantRejected, wantReplicas)
		}
	}
}
