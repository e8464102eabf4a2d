package matcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
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
	v1, v2 = widgets("v1", registry.Subresource{Name: "old"}), widgets("v2")
	nodes  = &apiset.Resource{Kind: &registry.Kind{Names: registry.Names{Version: "v1", Resource: "nodes", Kind: "Node"}}}
)

// family returns all versions of a resource.
func family(k *registry.Kind) []*apiset.Resource {
	if k.Resource == "widgets" {
		return []*apiset.Resource{v1, v2}
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

// rule parses "operations groups versions resources", followed by an optional scope and names. Lists
// have commas, "core" is the core group, and "-" is no scope.
func rule(t *testing.T, text string) admissionv1.NamedRuleWithOperations {
	t.Helper()
	f := strings.Fields(text)
	list := func(i int) []string {
		return strings.Split(strings.ReplaceAll(f[i], "core", ""), ",")
	}
	operations := admissionv1.NamedRuleWithOperations{}
	for _, op := range list(0) {
		operations.Operations = append(operations.Operations, admissionv1.OperationType(op))
	}
	operations.APIGroups, operations.APIVersions, operations.Resources = list(1), list(2), list(3)
	if len(f) > 4 && f[4] != "-" {
		scope := admissionv1.ScopeType(f[4])
		operations.Scope = &scope
	}
	if len(f) > 5 {
		operations.ResourceNames = list(5)
	}
	return operations
}

// widget returns a request for the widget w of the namespace ns, or for one of its subresources.
func widget(version *apiset.Resource, op admission.Operation, subresource string) *admission.Request {
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

// TestRulesSelectRequests checks which rules match a request, and as which resource and kind.
func TestRulesSelectRequests(t *testing.T) {
	node := &admission.Request{Operation: admission.Create, Resource: nodes.Kind, Kind: nodes.GVK(), Name: "n"}
	deleteWithoutNamespace := &admission.Request{Operation: admission.Delete, Resource: v1.Kind, Kind: v1.GVK()}
	for _, test := range []struct {
		rules, exclude string // separated by ;
		isExact        bool
		r              *admission.Request
		as             string // wanted resource and kind; "" if the rules do not match
	}{
		{rules: "* * * *", r: node, as: "/v1 nodes Node"},
		{rules: "CREATE core v1 nodes", r: node, as: "/v1 nodes Node"},
		{rules: "UPDATE,DELETE core v1 nodes", r: node},
		{rules: "CREATE apps v1 nodes", r: node},
		{rules: "CREATE core v2 nodes", r: node},
		{rules: "CREATE core v1 pods", r: node},
		{rules: "* * * * Namespaced", r: node},
		{rules: "* * * * Cluster", r: node, as: "/v1 nodes Node"},
		{rules: "* * * * *", r: node, as: "/v1 nodes Node"},
		{rules: "* * * * Cluster", r: widget(v1, admission.Create, "")},
		{rules: "* * * * Namespaced", r: widget(v1, admission.Create, ""), as: "ex.test/v1 widgets Widget"},
		{rules: "* * * * Cluster", r: deleteWithoutNamespace, as: "ex.test/v1 widgets Widget"},
		{rules: "* * * * Namespaced", r: deleteWithoutNamespace},
		{rules: "* * * * - a,n", r: node, as: "/v1 nodes Node"},
		{rules: "* * * * - a,b", r: node},
		{rules: "* * * *", exclude: "* * * nodes", r: node},
		{rules: "* * * *", exclude: "* * * nodes - other", r: node, as: "/v1 nodes Node"},
		{rules: "DELETE core v1 nodes;CREATE core v1 nodes", r: node, as: "/v1 nodes Node"},
		// Subresources.
		{rules: "* * * *", r: widget(v1, admission.Update, "status")},
		{rules: "* * * */*", r: widget(v1, admission.Update, "status"), as: "ex.test/v1 widgets Widget"},
		{rules: "* * * */*", r: widget(v1, admission.Update, ""), as: "ex.test/v1 widgets Widget"},
		{rules: "* * * */status", r: widget(v1, admission.Update, "status"), as: "ex.test/v1 widgets Widget"},
		{rules: "* * * widgets/*", r: widget(v1, admission.Update, "status"), as: "ex.test/v1 widgets Widget"},
		{rules: "* * * widgets/scale", r: widget(v1, admission.Update, "status")},
		{rules: "* * * widgets", r: widget(v1, admission.Update, "status")},
		// Other versions.
		{rules: "* ex.test v2 widgets", r: widget(v1, admission.Create, ""), as: "ex.test/v2 widgets Widget"},
		{rules: "* ex.test v2 widgets", isExact: true, r: widget(v1, admission.Create, "")},
		{rules: "* ex.test v2 widgets;* ex.test v1 widgets", r: widget(v1, admission.Create, ""), as: "ex.test/v1 widgets Widget"},
		{rules: "* ex.test v2 widgets/status", r: widget(v1, admission.Update, "status"), as: "ex.test/v2 widgets Widget"},
		{rules: "* ex.test v2 widgets/own", r: widget(v1, admission.Update, "own"), as: "ex.test/v2 widgets Own"},
		{rules: "* ex.test v2 widgets/scale", r: widget(v1, admission.Update, "scale"), as: "ex.test/v2 widgets Scale of autoscaling/v1"},
		{rules: "* ex.test v3 widgets", r: widget(v1, admission.Create, "")},
		{rules: "* ex.test v2 widgets/old", r: widget(v1, admission.Update, "old")}, // not served in that version
		{rules: "* * * *", exclude: "* ex.test v2 widgets", r: widget(v1, admission.Create, "")},
		{rules: "* * * *", exclude: "* ex.test v2 widgets", isExact: true, r: widget(v1, admission.Create, ""), as: "ex.test/v1 widgets Widget"},
	} {
		criteria := matcher.Criteria{Exact: test.isExact}
		for _, text := range strings.Split(test.rules, ";") {
			criteria.Rules = append(criteria.Rules, rule(t, text))
		}
		if test.exclude != "" {
			criteria.Exclude = append(criteria.Exclude, rule(t, test.exclude))
		}
		compiled, err := matcher.Compile(criteria)
		if err != nil {
			t.Fatal(err)
		}
		describe := func(as matcher.MatchedKind, ok bool) string {
			if !ok {
				return ""
			}
			if k := as.Kind.GroupVersion(); k != as.Resource.GroupVersion() {
				return as.Resource.GroupVersion().String() + " " + as.Resource.Resource + " " + as.Kind.Kind + " of " + k.String()
			}
			return as.Resource.GroupVersion().String() + " " + as.Resource.Resource + " " + as.Kind.Kind
		}
		test.as = strings.TrimPrefix(test.as, "/")
		description := fmt.Sprintf("%q without %q, exact %t, for %s %s/%s",
			test.rules, test.exclude, test.isExact, test.r.Operation, test.r.Resource.GVR(), test.r.Subresource)
		as, ok, err := compiled.Match(t.Context(), test.r, family, namespaces{})
		if got := describe(as, ok); got != test.as || err != nil {
			t.Errorf("%s: got %q and error %v, want %q and no error", description, got, err, test.as)
		}
		// An index gives the same results, also on a second lookup.
		index := matcher.NewIndex(family, []matcher.Entry[string]{{Criteria: compiled, Value: "it"}})
		for range 2 {
			got := ""
			for _, candidate := range index.Candidates(test.r) {
				as, ok, err := candidate.Selects(t.Context(), test.r, test.r.Object, namespaces{})
				if err != nil || candidate.Value != "it" {
					t.Errorf("%s: index: got candidate %q and error %v, want \"it\" and no error", description, candidate.Value, err)
				}
				got = describe(as, ok)
			}
			if got != test.as {
				t.Errorf("%s: index: got %q, want %q", description, got, test.as)
			}
		}
	}
}

// TestWithoutRulesEverythingMatches checks that criteria without rules match any request.
func TestWithoutRulesEverythingMatches(t *testing.T) {
	c, err := matcher.Compile(matcher.Criteria{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := c.Match(t.Context(), widget(v1, admission.Connect, "own"), family, namespaces{}); !ok || err != nil {
		t.Errorf("connect of a subresource: got a match: %t and error %v, want true and no error", ok, err)
	}
}

// TestSelectorsMatchObjectsAndNamespaces checks which objects and namespaces selectors match.
func TestSelectorsMatchObjectsAndNamespaces(t *testing.T) {
	label := func(k, v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	}
	object := func(labels ...string) runtime.Object {
		p := &corev1.Pod{}
		for i := 0; i < len(labels); i += 2 {
			metav1.SetMetaDataLabel(&p.ObjectMeta, labels[i], labels[i+1])
		}
		return p
	}
	namespaceKind := &registry.Kind{Names: registry.Names{Version: "v1", Resource: "namespaces", Kind: "Namespace"}}
	for name, test := range map[string]struct {
		namespaces, objects *metav1.LabelSelector
		r                   admission.Request
		wantMatch           bool
		wantErr             string
	}{
		"empty selectors": {
			namespaces: &metav1.LabelSelector{}, objects: &metav1.LabelSelector{},
			r: admission.Request{Namespace: "broken"}, wantMatch: true,
		},
		"selected namespace":    {namespaces: label("is", "ns"), r: admission.Request{Namespace: "ns"}, wantMatch: true},
		"other namespace":       {namespaces: label("is", "ns"), r: admission.Request{Namespace: "x"}},
		"cluster-scoped object": {namespaces: label("is", "ns"), wantMatch: true},
		"absent namespace": {
			namespaces: label("is", "ns"), r: admission.Request{Namespace: "absent"},
			wantErr: `namespaces "absent" not found`,
		},
		"namespace lookup fails": {
			namespaces: label("is", "ns"), r: admission.Request{Namespace: "broken"},
			wantErr: "Internal error occurred: no answer",
		},
		"create of a namespace: its labels": {
			namespaces: label("is", "new"),
			r:          admission.Request{Resource: namespaceKind, Name: "x", Object: object("is", "new")}, wantMatch: true,
		},
		"create of a namespace: not the stored labels": {
			namespaces: label("is", "x"),
			r:          admission.Request{Resource: namespaceKind, Name: "x", Object: object("is", "new")},
		},
		"delete of a namespace: the stored labels": {
			namespaces: label("is", "x"),
			r:          admission.Request{Resource: namespaceKind, Name: "x", OldObject: object()}, wantMatch: true,
		},
		"selected object":               {objects: label("a", "b"), r: admission.Request{Object: object("a", "b")}, wantMatch: true},
		"selected old object":           {objects: label("a", "b"), r: admission.Request{Object: object(), OldObject: object("a", "b")}, wantMatch: true},
		"neither object nor old object": {objects: label("a", "b"), r: admission.Request{Object: object(), OldObject: object("a", "c")}},
		"no object":                     {objects: label("a", "b")},
		"object without metadata":       {objects: label("a", "b"), r: admission.Request{Object: &metav1.Status{}}},
		"labels of an object do not count for its namespace": {namespaces: label("is", "ns"), r: admission.Request{Namespace: "x", Object: object("is", "ns")}},
		"subresource of a namespace: the stored labels": {
			namespaces: label("is", "x"),
			r:          admission.Request{Resource: namespaceKind, Subresource: "status", Name: "x", Object: object("is", "new")},
			wantMatch:  true,
		},
		"object that does not match: no namespace lookup": {
			objects: label("a", "b"), namespaces: label("is", "ns"),
			r: admission.Request{Namespace: "broken", Object: object()},
		},
	} {
		compiled, err := matcher.Compile(matcher.Criteria{Namespaces: test.namespaces, Objects: test.objects})
		if err != nil {
			t.Fatal(err)
		}
		if test.r.Resource == nil {
			test.r.Resource = v1.Kind
		}
		_, ok, err := compiled.Match(t.Context(), &test.r, family, namespaces{})
		if ok != test.wantMatch || err == nil && test.wantErr != "" || err != nil && err.Error() != test.wantErr {
			t.Errorf("%s: got a match: %t and error %v, want %t and error %q (empty: none)", name, ok, err, test.wantMatch, test.wantErr)
		}
	}
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Odd"}}}
	for want, c := range map[string]matcher.Criteria{"namespaceSelector: ": {Namespaces: invalid}, "objectSelector: ": {Objects: invalid}} {
		if _, err := matcher.Compile(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Compile(%+v): got error %v, want one that begins with %q", c, err, want)
		}
	}
}

// TestAdmissionConfigurationIsExempt checks that no criteria apply to policies, their bindings
// and webhook configurations.
func TestAdmissionConfigurationIsExempt(t *testing.T) {
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

// TestConditionsDecideByFailurePolicyAndCost checks that a request matches if all conditions are true. A
// false condition takes precedence over an error, which the failure policy may ignore.
func TestConditionsDecideByFailurePolicyAndCost(t *testing.T) {
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
		list      []string // expressions; their names are their indexes
		isOpen    bool     // failurePolicy Ignore
		wantMatch bool
		wantFalse string // name of the false condition
		wantErr   string // beginning of the error
	}{
		"no conditions": {wantMatch: true},
		"all true":      {list: []string{"object.a == 'b'", "oldObject == null"}, wantMatch: true},
		"one false":     {list: []string{"true", "false", "false"}, wantFalse: "1"},
		"one error": {
			list:    []string{"true", "object.none == 1"},
			wantErr: "expression 'object.none == 1' resulted in error: no such key: none",
		},
		"one error, ignored":       {list: []string{"true", "object.none == 1"}, isOpen: true},
		"false wins over an error": {list: []string{"object.none == 1", "false"}, wantFalse: "1"},
		"two errors": {
			list:    []string{"object.none == 1", "object.more == 1"},
			wantErr: "[expression 'object.none == 1' resulted in error: no such key: none, expression 'object.more == 1' resulted in error: no such key: more]",
		},
		"does not compile":                         {list: []string{"1 +"}, wantErr: "compilation failed: "},
		"does not compile, ignored":                {list: []string{"1 +"}, isOpen: true},
		"one false, one does not compile":          {list: []string{"1 +", "false"}, wantFalse: "1"},
		"expensive":                                {list: []string{expensive}, wantMatch: true},
		"together too expensive":                   {list: []string{expensive, expensive, expensive, expensive}, wantErr: budget},
		"together too expensive, false after that": {list: []string{expensive, expensive, expensive, expensive, "false"}, wantErr: budget},
		"false, then too expensive":                {list: []string{"false", expensive, expensive, expensive, expensive}, wantFalse: "0"},
		"too expensive, ignored":                   {list: []string{expensive, expensive, expensive, expensive, "false"}, isOpen: true},
		"one is too expensive": {
			list:    []string{endless},
			wantErr: "expression '" + endless + "' resulted in error: operation cancelled: actual cost limit exceeded",
		},
	} {
		var list []admissionv1.MatchCondition
		for i, e := range test.list {
			list = append(list, admissionv1.MatchCondition{Name: fmt.Sprint(i), Expression: e})
		}
		conditions := matcher.CompileConditions(compiler, expressions.VariableSet{Authorizer: true}, list, !test.isOpen)
		ok, falseCondition, err := conditions.Match(t.Context(), in)
		if ok != test.wantMatch || falseCondition != test.wantFalse || (err != nil) != (test.wantErr != "") || err != nil && !strings.HasPrefix(err.Error(), test.wantErr) {
			t.Errorf("%s: got a match: %t, false condition %q, error %v; want %t, %q, error %q (empty: none)",
				name, ok, falseCondition, err, test.wantMatch, test.wantFalse, test.wantErr)
		}
	}
}
