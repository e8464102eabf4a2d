package matcher_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/registry"
)

// TestIndexKeepsExactEntriesApart checks that an entry with match policy Exact does not affect
// others.
func TestIndexKeepsExactEntriesApart(t *testing.T) {
	var entries []matcher.Entry[string]
	for _, test := range []struct {
		name    string
		isExact bool
	}{
		{name: "first", isExact: true},
		{name: "equivalent", isExact: false},
		{name: "last", isExact: true},
	} {
		compiled, err := matcher.Compile(
			matcher.Criteria{Exact: test.isExact, Rules: append(matcher.Unnamed(nil), parseRule(t, "* ex.test v2 widgets"))},
		)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, matcher.Entry[string]{Criteria: compiled, Value: test.name})
	}
	index := matcher.NewIndex(family, entries)
	var got []string
	for _, c := range index.Candidates(widgetRequest(widgetsV1, admission.Create, "")) {
		got = append(got, c.Value)
	}
	if fmt.Sprint(got) != "[equivalent]" || index.Len() != 3 {
		t.Errorf("got candidates %v of %d entries, want [equivalent] of 3 entries", got, index.Len())
	}
}

// TestNamespaceOfNamespaceIsItself checks that the namespace of a Namespace is itself, also before
// the request has its name.
func TestNamespaceOfNamespaceIsItself(t *testing.T) {
	kind := &registry.Kind{Names: registry.Names{Version: "v1", Resource: "namespaces", Kind: "Namespace"}}
	named := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "made"}}
	for want, r := range map[string]*admission.Request{
		"ns":   {Resource: widgetsV1.Kind, Namespace: "ns", Name: "w", Object: named},
		"made": {Resource: kind, Object: named},
		"x":    {Resource: kind, Namespace: "other", Name: "x", Object: named},
		"":     {Resource: kind},
	} {
		if got := matcher.Namespace(r); got != want {
			t.Errorf("Namespace of a request for %s with namespace %q and name %q: got %q, want %q",
				r.Resource.Resource, r.Namespace, r.Name, got, want)
		}
	}
	if got := matcher.Namespace(&admission.Request{Resource: kind, Object: &metav1.Status{}}); got != "" {
		t.Errorf("object without metadata: got %q, want \"\"", got)
	}
}

// recorder is an authorizer that records the attributes of its last call.
type recorder struct{ attributes *authorizer.Attributes }

func (a *recorder) Authorize(_ context.Context, q *authorizer.Attributes) (authorizer.Decision, string, error) {
	a.attributes = q
	return authorizer.Allow, "", nil
}

// TestVariablesDescribeTheRequest checks the values of the variables of expressions.
func TestVariablesDescribeTheRequest(t *testing.T) {
	req := widgetRequest(widgetsV1, admission.Update, "")
	matchedKind := matcher.MatchedKind{Resource: widgetsV2.GVR(), Kind: widgetsV2.GVK()}
	in := matcher.NewExpressionInput(t.Context(), req, nil, matchedKind, nil)
	if in.Authorizer != nil || in.RequestResource != nil {
		t.Errorf("without authorizer: got input %+v, want neither an authorizer nor a request resource", in)
	}
	variable := in.Request().(map[string]any)
	if user := variable["userInfo"].(map[string]any); len(user) != 0 || variable["options"] != nil || in.Err != nil {
		t.Errorf("without user and options: got request %v and error %v, want empty userInfo, no options and no error", variable, in.Err)
	}
	if variable["kind"].(map[string]any)["version"] != "v2" || variable["requestKind"].(map[string]any)["version"] != "v1" ||
		variable["namespace"] != "ns" ||
		variable["dryRun"] != false {
		t.Errorf("got request %v, want kind of version v2, requestKind of version v1, namespace ns, dryRun false", variable)
	}
	for _, field := range []string{"uid", "object", "oldObject"} {
		if _, ok := variable[field]; ok {
			t.Errorf("request has the field %s, want it unset", field)
		}
	}
	req.User = &authorizer.User{Name: "ada", UID: "1", Groups: []string{"dev"}, Extra: map[string][]string{"a": {"b"}, "c": {"d"}}}
	req.Options, req.DryRun = &metav1.PatchOptions{FieldManager: "m"}, true
	recording := &recorder{}
	in = matcher.NewExpressionInput(t.Context(), req, nil, matchedKind, recording)
	variable = in.Request().(map[string]any)
	want := "map[extra:map[a:[b] c:[d]] groups:[dev] uid:1 username:ada] " +
		"map[apiVersion:meta.k8s.io/v1 fieldManager:m kind:UpdateOptions] true"
	if got := fmt.Sprint(variable["userInfo"], variable["options"], variable["dryRun"]); got != want {
		t.Errorf("userInfo, options and dryRun: got %s, want %s", got, want)
	}
	if in.Authorizer == nil || in.RequestResource == nil {
		t.Errorf("got input %+v, want one with authorizer and request resource", in)
	}
}

// TestOptionsHaveTheKindOfTheOperation checks that options have the kind of the operation.
func TestOptionsHaveTheKindOfTheOperation(t *testing.T) {
	for _, test := range []struct {
		op   admission.Operation
		in   runtime.Object // options of the request
		want string         // kind, field manager, field validation and dry run
	}{
		{
			op:   admission.Create,
			in:   &metav1.CreateOptions{FieldManager: "m", FieldValidation: "Strict", DryRun: []string{"All"}},
			want: "CreateOptions m Strict [All]",
		},
		{op: admission.Create, in: &metav1.PatchOptions{FieldManager: "m", FieldValidation: "Strict"}, want: "CreateOptions m Strict []"},
		{op: admission.Create, in: &metav1.UpdateOptions{FieldManager: "m"}, want: "CreateOptions m  []"},
		{op: admission.Update, in: &metav1.PatchOptions{FieldManager: "m"}, want: "UpdateOptions m  []"},
		{op: admission.Update, in: &metav1.UpdateOptions{FieldManager: "m"}, want: "UpdateOptions m  []"},
		{op: admission.Delete, in: &metav1.DeleteOptions{}, want: "DeleteOptions"},
		{op: admission.Connect, in: nil, want: ""},
		{op: admission.Connect, in: &corev1.PodExecOptions{}, want: ""},
	} {
		got := ""
		switch o := matcher.Options(&admission.Request{Operation: test.op, Options: test.in}).(type) {
		case *metav1.CreateOptions:
			got = fmt.Sprint(o.Kind, " ", o.FieldManager, " ", o.FieldValidation, " ", o.DryRun)
		case *metav1.UpdateOptions:
			got = fmt.Sprint(o.Kind, " ", o.FieldManager, " ", o.FieldValidation, " ", o.DryRun)
		case *metav1.DeleteOptions:
			got = o.Kind
		}
		if got != test.want {
			t.Errorf("options of %s given as %T: got %q, want %q", test.op, test.in, got, test.want)
		}
	}
}
