package matcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry"
)

// widgets returns a version of the resource widgets, with the subresources own (of a kind of its own),
// scale, status and more.
func widgets(version string, subresources ...registry.Subresource) *apiset.Resource {
	return &apiset.Resource{Kind: &registry.Kind{
		Names: registry.Names{Group: "ex.test", Version: version, Resource: "widgets", Kind: "Widget", Namespaced: true},
		Subresources: append(subresources, []registry.Subresource{
			{Name: "own", GVK: schema.GroupVersionKind{Kind: "Own"}},
			{Name: "scale", GVK: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}},
			{Name: "status"},
		}...),
	}}
}

var (
	widgetsV1, widgetsV2 = widgets("v1", registry.Subresource{Name: "old"}), widgets("v2")
	nodes                = &apiset.Resource{Kind: &registry.Kind{Names: registry.Names{Version: "v1", Resource: "nodes", Kind: "Node"}}}
)

// family returns all versions of a resource.
func family(k *registry.Kind) []*apiset.Resource {
	if k.Resource == "widgets" {
		return []*apiset.Resource{widgetsV1, widgetsV2}
	}
	return []*apiset.Resource{nodes}
}

// namespaces labels each namespace with its name. The lookup of "broken" fails.
type namespaces struct{}

func (namespaces) Labels(_ context.Context, name string) (map[string]string, error) {
	switch name {
	case "absent":
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	case "broken":
		return nil, errors.New("no answer")
	}
	return map[string]string{"is": name}, nil
}

// parseRule parses "operations groups versions resources", followed by an optional scope and optional
// names. The elements of a list are separated by commas. "core" is the core group, "-" is no scope.
func parseRule(t *testing.T, text string) admissionregistrationv1.NamedRuleWithOperations {
	t.Helper()
	fields := strings.Fields(text)
	list := func(i int) []string {
		return strings.Split(strings.ReplaceAll(fields[i], "core", ""), ",")
	}
	parsed := admissionregistrationv1.NamedRuleWithOperations{}
	for _, op := range list(0) {
		parsed.Operations = append(parsed.Operations, admissionregistrationv1.OperationType(op))
	}
	parsed.APIGroups, parsed.APIVersions, parsed.Resources = list(1), list(2), list(3)
	if len(fields) > 4 && fields[4] != "-" {
		scope := admissionregistrationv1.ScopeType(fields[4])
		parsed.Scope = &scope
	}
	if len(fields) > 5 {
		parsed.ResourceNames = list(5)
	}
	return parsed
}

// widgetRequest returns a request for the widget w of the namespace ns, or for one of its
// subresources.
func widgetRequest(version *apiset.Resource, op admission.Operation, subresource string) *admission.Request {
	req := &admission.Request{
		Operation:   op,
		Resource:    version.Kind,
		Subresource: subresource,
		Kind:        version.GVK(),
		Namespace:   "ns",
		Name:        "w",
	}
	switch subresource {
	case "own":
		req.Kind.Kind = "Own"
	case "scale":
		req.Kind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	}
	return req
}

// ruleCase is a request and the rules that are matched with it. want is the resource and kind that the
// request is matched as, or "" if the rules do not match.
type ruleCase struct {
	rules   string // in the syntax of parseRule, separated by ";"
	exclude string // one exclusion rule, or ""
	isExact bool   // match policy Exact
	request *admission.Request
	want    string
}

// Values of ruleCase.want.
const (
	asNode     = "v1 nodes Node"
	asWidgetV1 = "ex.test/v1 widgets Widget"
	asWidgetV2 = "ex.test/v2 widgets Widget"
)

// describe returns a matched kind in the form of ruleCase.want.
func describe(as matcher.MatchedKind, ok bool) string {
	if !ok {
		return ""
	}
	text := as.Resource.GroupVersion().String() + " " + as.Resource.Resource + " " + as.Kind.Kind
	if kindVersion := as.Kind.GroupVersion(); kindVersion != as.Resource.GroupVersion() {
		text += " of " + kindVersion.String()
	}
	return text
}

// check matches the request with the rules directly and by an index, which must give the same result
// on its first lookup and on a lookup from its cache.
func (c *ruleCase) check(t *testing.T) {
	t.Helper()
	criteria := matcher.Criteria{Exact: c.isExact}
	for _, text := range strings.Split(c.rules, ";") {
		criteria.Rules = append(criteria.Rules, parseRule(t, text))
	}
	if c.exclude != "" {
		criteria.Exclude = append(criteria.Exclude, parseRule(t, c.exclude))
	}
	compiled, err := matcher.Compile(criteria)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%q without %q, exact %t, for %s %s/%s",
		c.rules, c.exclude, c.isExact, c.request.Operation, c.request.Resource.GVR(), c.request.Subresource)
	as, ok, err := compiled.Match(t.Context(), c.request, family, namespaces{})
	if got := describe(as, ok); got != c.want || err != nil {
		t.Errorf("%s: got %q and error %v, want %q and no error", name, got, err, c.want)
	}
	index := matcher.NewIndex(family, []matcher.Entry[string]{{Criteria: compiled, Value: "entry"}})
	for _, lookup := range []string{"first lookup", "cached lookup"} {
		got := ""
		for _, candidate := range index.Candidates(c.request) {
			as, ok, err := candidate.Selects(t.Context(), c.request, c.request.Object, namespaces{})
			if err != nil || candidate.Value != "entry" {
				t.Errorf("%s: %s: got candidate %q and error %v, want \"entry\" and no error", name, lookup, candidate.Value, err)
			}
			got = describe(as, ok)
		}
		if got != c.want {
			t.Errorf("%s: %s: got %q, want %q", name, lookup, got, c.want)
		}
	}
}

// TestRulesMatchOperationResourceScopeAndName checks which rules match a request, and as which
// resource and kind.
func TestRulesMatchOperationResourceScopeAndName(t *testing.T) {
	node := &admission.Request{Operation: admission.Create, Resource: nodes.Kind, Kind: nodes.GVK(), Name: "n"}
	deleteWithoutNamespace := &admission.Request{Operation: admission.Delete, Resource: widgetsV1.Kind, Kind: widgetsV1.GVK()}
	for _, test := range []ruleCase{
		{rules: "* * * *", request: node, want: asNode},
		{rules: "CREATE core v1 nodes", request: node, want: asNode},
		{rules: "UPDATE,DELETE core v1 nodes", request: node},
		{rules: "CREATE apps v1 nodes", request: node},
		{rules: "CREATE core v2 nodes", request: node},
		{rules: "CREATE core v1 pods", request: node},
		{rules: "* * * * Namespaced", request: node},
		{rules: "* * * * Cluster", request: node, want: asNode},
		{rules: "* * * * *", request: node, want: asNode},
		{rules: "* * * * Cluster", request: widgetRequest(widgetsV1, admission.Create, "")},
		{rules: "* * * * Namespaced", request: widgetRequest(widgetsV1, admission.Create, ""), want: asWidgetV1},
		{rules: "* * * * Cluster", request: deleteWithoutNamespace, want: asWidgetV1},
		{rules: "* * * * Namespaced", request: deleteWithoutNamespace},
		{rules: "* * * * - a,n", request: node, want: asNode},
		{rules: "* * * * - a,b", request: node},
		{rules: "* * * *", exclude: "* * * nodes", request: node},
		{rules: "* * * *", exclude: "* * * nodes - other", request: node, want: asNode},
		{rules: "DELETE core v1 nodes;CREATE core v1 nodes", request: node, want: asNode},
	} {
		test.check(t)
	}
}

// TestRulesMatchSubresourcesOnlyIfNamed checks that a rule matches a subresource only by its name
// or by a wildcard after a slash.
func TestRulesMatchSubresourcesOnlyIfNamed(t *testing.T) {
	for _, test := range []ruleCase{
		{rules: "* * * *", request: widgetRequest(widgetsV1, admission.Update, "status")},
		{rules: "* * * */*", request: widgetRequest(widgetsV1, admission.Update, "status"), want: asWidgetV1},
		{rules: "* * * */*", request: widgetRequest(widgetsV1, admission.Update, ""), want: asWidgetV1},
		{rules: "* * * */status", request: widgetRequest(widgetsV1, admission.Update, "status"), want: asWidgetV1},
		{rules: "* * * widgets/*", request: widgetRequest(widgetsV1, admission.Update, "status"), want: asWidgetV1},
		{rules: "* * * widgets/scale", request: widgetRequest(widgetsV1, admission.Update, "status")},
		{rules: "* * * widgets", request: widgetRequest(widgetsV1, admission.Update, "status")},
	} {
		test.check(t)
	}
}

// TestRulesMatchEquivalentVersionsUnlessExact checks rules for a version other than the requested one.
// The requested version takes precedence if rules for both exist.
func TestRulesMatchEquivalentVersionsUnlessExact(t *testing.T) {
	for _, test := range []ruleCase{
		{rules: "* ex.test v2 widgets", request: widgetRequest(widgetsV1, admission.Create, ""), want: asWidgetV2},
		{rules: "* ex.test v2 widgets", isExact: true, request: widgetRequest(widgetsV1, admission.Create, "")},
		{rules: "* ex.test v2 widgets;* ex.test v1 widgets", request: widgetRequest(widgetsV1, admission.Create, ""), want: asWidgetV1},
		{rules: "* ex.test v2 widgets/status", request: widgetRequest(widgetsV1, admission.Update, "status"), want: asWidgetV2},
		{rules: "* ex.test v2 widgets/own", request: widgetRequest(widgetsV1, admission.Update, "own"), want: "ex.test/v2 widgets Own"},
		{rules: "* ex.test v2 widgets/scale", request: widgetRequest(widgetsV1, admission.Update, "scale"), want: "ex.test/v2 widgets Scale of autoscaling/v1"},
		{rules: "* ex.test v3 widgets", request: widgetRequest(widgetsV1, admission.Create, "")},
		{rules: "* ex.test v2 widgets/old", request: widgetRequest(widgetsV1, admission.Update, "old")}, // not served in that version
		{rules: "* * * *", exclude: "* ex.test v2 widgets", request: widgetRequest(widgetsV1, admission.Create, "")},
		{rules: "* * * *", exclude: "* ex.test v2 widgets", isExact: true, request: widgetRequest(widgetsV1, admission.Create, ""), want: asWidgetV1},
	} {
		test.check(t)
	}
}

// TestCriteriaWithoutRulesMatchEveryRequest checks that criteria without rules match any request.
func TestCriteriaWithoutRulesMatchEveryRequest(t *testing.T) {
	c, err := matcher.Compile(matcher.Criteria{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := c.Match(t.Context(), widgetRequest(widgetsV1, admission.Connect, "own"), family, namespaces{}); !ok || err != nil {
		t.Errorf("connect of a subresource: got a match: %t and error %v, want true and no error", ok, err)
	}
}

// TestSelectorsMatchObjectsAndNamespaces checks which objects and namespaces selectors match.
func TestSelectorsMatchObjectsAndNamespaces(t *testing.T) {
	label := func(k, v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	}
	object := func(labels ...string) runtime.Object {
		pod := &corev1.Pod{}
		for i := 0; i < len(labels); i += 2 {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, labels[i], labels[i+1])
		}
		return pod
	}
	namespaceKind := &registry.Kind{Names: registry.Names{Version: "v1", Resource: "namespaces", Kind: "Namespace"}}
	for name, test := range map[string]struct {
		namespaces, objects *metav1.LabelSelector
		request             admission.Request
		wantMatch           bool
		wantErr             string
	}{
		"empty selectors": {
			namespaces: &metav1.LabelSelector{}, objects: &metav1.LabelSelector{},
			request: admission.Request{Namespace: "broken"}, wantMatch: true,
		},
		"selected namespace":    {namespaces: label("is", "ns"), request: admission.Request{Namespace: "ns"}, wantMatch: true},
		"other namespace":       {namespaces: label("is", "ns"), request: admission.Request{Namespace: "x"}},
		"cluster-scoped object": {namespaces: label("is", "ns"), wantMatch: true},
		"absent namespace": {
			namespaces: label("is", "ns"), request: admission.Request{Namespace: "absent"},
			wantErr: `namespaces "absent" not found`,
		},
		"namespace lookup fails": {
			namespaces: label("is", "ns"), request: admission.Request{Namespace: "broken"},
			wantErr: "Internal error occurred: no answer",
		},
		"create of a namespace: its labels": {
			namespaces: label("is", "new"),
			request:    admission.Request{Resource: namespaceKind, Name: "x", Object: object("is", "new")}, wantMatch: true,
		},
		"create of a namespace: not the stored labels": {
			namespaces: label("is", "x"),
			request:    admission.Request{Resource: namespaceKind, Name: "x", Object: object("is", "new")},
		},
		"delete of a namespace: the stored labels": {
			namespaces: label("is", "x"),
			request:    admission.Request{Resource: namespaceKind, Name: "x", OldObject: object()}, wantMatch: true,
		},
		"selected object":               {objects: label("a", "b"), request: admission.Request{Object: object("a", "b")}, wantMatch: true},
		"selected old object":           {objects: label("a", "b"), request: admission.Request{Object: object(), OldObject: object("a", "b")}, wantMatch: true},
		"neither object nor old object": {objects: label("a", "b"), request: admission.Request{Object: object(), OldObject: object("a", "c")}},
		"no object":                     {objects: label("a", "b")},
		"object without metadata":       {objects: label("a", "b"), request: admission.Request{Object: &metav1.Status{}}},
		"labels of an object do not count for its namespace": {namespaces: label("is", "ns"), request: admission.Request{Namespace: "x", Object: object("is", "ns")}},
		"subresource of a namespace: the stored labels": {
			namespaces: label("is", "x"),
			request:    admission.Request{Resource: namespaceKind, Subresource: "status", Name: "x", Object: object("is", "new")},
			wantMatch:  true,
		},
		"object that does not match: no namespace lookup": {
			objects: label("a", "b"), namespaces: label("is", "ns"),
			request: admission.Request{Namespace: "broken", Object: object()},
		},
	} {
		compiled, err := matcher.Compile(matcher.Criteria{Namespaces: test.namespaces, Objects: test.objects})
		if err != nil {
			t.Fatal(err)
		}
		if test.request.Resource == nil {
			test.request.Resource = widgetsV1.Kind
		}
		_, ok, err := compiled.Match(t.Context(), &test.request, family, namespaces{})
		if ok != test.wantMatch || err == nil && test.wantErr != "" || err != nil && err.Error() != test.wantErr {
			t.Errorf("%s: got a match: %t and error %v, want %t and error %q (empty: none)", name, ok, err, test.wantMatch, test.wantErr)
		}
	}
}

// TestCompileRejectsInvalidSelectors checks that the error names the invalid selector.
func TestCompileRejectsInvalidSelectors(t *testing.T) {
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Odd"}}}
	for want, c := range map[string]matcher.Criteria{"namespaceSelector: ": {Namespaces: invalid}, "objectSelector: ": {Objects: invalid}} {
		if _, err := matcher.Compile(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Compile(%+v): got error %v, want one that begins with %q", c, err, want)
		}
	}
}

// TestExemptCoversAdmissionConfiguration checks that no criteria apply to policies, their bindings
// and webhook configurations.
func TestExemptCoversAdmissionConfiguration(t *testing.T) {
	for resource, want := range map[string]bool{
		"admissionregistration.k8s.io/mutatingwebhookconfigurations":     true,
		"admissionregistration.k8s.io/validatingwebhookconfigurations":   true,
		"admissionregistration.k8s.io/validatingadmissionpolicies":       true,
		"admissionregistration.k8s.io/validatingadmissionpolicybindings": true,
		"admissionregistration.k8s.io/mutatingadmissionpolicies":         true,
		"admissionregistration.k8s.io/mutatingadmissionpolicybindings":   true,
		"admissionregistration.k8s.io/others":                            false,
		"ex.test/validatingwebhookconfigurations":                        false,
		"/pods": false,
	} {
		group, name, _ := strings.Cut(resource, "/")
		if got := matcher.Exempt(&admission.Request{Resource: &registry.Kind{Names: registry.Names{Group: group, Resource: name}}}); got != want {
			t.Errorf("Exempt(%s) = %t, want %t", resource, got, want)
		}
	}
}

// TestConditionsMatchIfAllAreTrue checks that a request matches if all conditions are true. A
// false condition takes precedence over an error, which the failure policy may ignore.
func TestConditionsMatchIfAllAreTrue(t *testing.T) {
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	// A scan per element costs a third of the budget for the list "long", and too much for
	// "endless".
	lists := map[string]any{"a": "b", "long": slices.Repeat([]any{"x"}, 330), "endless": slices.Repeat([]any{"x"}, 3000)}
	in := &expressions.Input{
		Object: func() any { return lists }, OldObject: func() any { return nil },
		Request: func() any { return map[string]any{} }, NamespaceObject: func() any { return nil },
	}
	const expensive = "object.long.all(x, object.long.all(y, y == x))"
	const endless = "object.endless.all(x, object.endless.all(y, y == x))"
	const budget = "validation failed due to running out of cost budget, no further validation rules will be run"
	for name, test := range map[string]struct {
		conditions []string // expressions; their names are their indexes
		failOpen   bool     // failurePolicy Ignore
		wantMatch  bool
		wantFalse  string // name of the false condition
		wantErr    string // beginning of the error
	}{
		"no conditions": {wantMatch: true},
		"all true":      {conditions: []string{"object.a == 'b'", "oldObject == null"}, wantMatch: true},
		"one false":     {conditions: []string{"true", "false", "false"}, wantFalse: "1"},
		"one error": {
			conditions: []string{"true", "object.none == 1"},
			wantErr:    "expression 'object.none == 1' resulted in error: no such key: none",
		},
		"one error, ignored":       {conditions: []string{"true", "object.none == 1"}, failOpen: true},
		"false wins over an error": {conditions: []string{"object.none == 1", "false"}, wantFalse: "1"},
		"two errors": {
			conditions: []string{"object.none == 1", "object.more == 1"},
			wantErr:    "[expression 'object.none == 1' resulted in error: no such key: none, expression 'object.more == 1' resulted in error: no such key: more]",
		},
		"does not compile":                         {conditions: []string{"1 +"}, wantErr: "compilation failed: "},
		"does not compile, ignored":                {conditions: []string{"1 +"}, failOpen: true},
		"one false, one does not compile":          {conditions: []string{"1 +", "false"}, wantFalse: "1"},
		"expensive":                                {conditions: []string{expensive}, wantMatch: true},
		"together too expensive":                   {conditions: []string{expensive, expensive, expensive, expensive}, wantErr: budget},
		"together too expensive, false after that": {conditions: []string{expensive, expensive, expensive, expensive, "false"}, wantErr: budget},
		"false, then too expensive":                {conditions: []string{"false", expensive, expensive, expensive, expensive}, wantFalse: "0"},
		"too expensive, ignored":                   {conditions: []string{expensive, expensive, expensive, expensive, "false"}, failOpen: true},
		"one is too expensive": {
			conditions: []string{endless},
			wantErr:    "expression '" + endless + "' resulted in error: operation cancelled: actual cost limit exceeded",
		},
	} {
		var list []admissionregistrationv1.MatchCondition
		for i, e := range test.conditions {
			list = append(list, admissionregistrationv1.MatchCondition{Name: fmt.Sprint(i), Expression: e})
		}
		conditions := matcher.CompileConditions(compiler, expressions.VariableSet{Authorizer: true}, list, !test.failOpen)
		ok, falseCondition, err := conditions.Match(t.Context(), in)
		if ok != test.wantMatch || falseCondition != test.wantFalse || (err != nil) != (test.wantErr != "") || err != nil && !strings.HasPrefix(err.Error(), test.wantErr) {
			t.Errorf("%s: got a match: %t, false condition %q, error %v; want %t, %q, error %q (empty: none)",
				name, ok, falseCondition, err, test.wantMatch, test.wantFalse, test.wantErr)
		}
	}
}
