package authz_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
)

// TestForbiddenNamesUserAndResource checks the message and the details of 403 errors.
func TestForbiddenNamesUserAndResource(t *testing.T) {
	for _, test := range []struct {
		path, reason, message string
		details               metav1.StatusDetails
	}{
		{
			path:    "/api/v1/namespaces/a/pods/p",
			message: `pods "p" is forbidden: User "alice" cannot get resource "pods" in API group "" in the namespace "a"`,
			details: metav1.StatusDetails{Name: "p", Kind: "pods"},
		},
		{
			path:    "/apis/apps/v1/deployments",
			reason:  "because",
			message: `deployments.apps is forbidden: User "alice" cannot list resource "deployments" in API group "apps" at the cluster scope: because`,
			details: metav1.StatusDetails{Group: "apps", Kind: "deployments"},
		},
		{path: "/metrics", message: `forbidden: User "alice" cannot get path "/metrics"`, details: metav1.StatusDetails{}},
	} {
		err := authz.Forbidden(attributesOf(http.MethodGet, test.path), test.reason)
		var statusErr apierrors.APIStatus
		if !errors.As(err, &statusErr) ||
			statusErr.Status().Code != http.StatusForbidden ||
			statusErr.Status().Message != test.message ||
			!reflect.DeepEqual(statusErr.Status().Details, &test.details) {
			t.Errorf("%s: got %v, %+v; want 403 %q, %+v", test.path, err, statusErr.Status().Details, test.message, test.details)
		}
	}
	if text := authz.Message(&authz.Attributes{Verb: "get", Path: "/"}); text != `User "" cannot get path "/"` {
		t.Errorf("message without a user: got %q, want an empty user name", text)
	}
}

// fixedAuthorizer is an authorizer with a fixed decision.
type fixedAuthorizer struct {
	decision    authz.Decision
	err         error
	requests    *[]string
	onlyForName string // resource name that the decision is for
}

func (s fixedAuthorizer) Authorize(_ context.Context, attrs *authz.Attributes) (authz.Decision, string, error) {
	if s.requests != nil {
		*s.requests = append(*s.requests,
			strings.Join([]string{attrs.User.Name, attrs.Verb, attrs.Group, attrs.ResourceName, attrs.Name}, " "))
	}
	if s.onlyForName != "" && attrs.Name != s.onlyForName {
		return authz.NoOpinion, "", nil
	}
	return s.decision, "", s.err
}

// rulesAuthorizer is a fixed authorizer that also lists rules.
type rulesAuthorizer struct{ fixedAuthorizer }

func (rulesAuthorizer) RulesFor(context.Context, *authorizer.User, string) (authorizer.Rules, error) {
	return authorizer.Rules{Incomplete: true}, nil
}

// TestSignerPermissionMayCoverDomain checks that a permission on the signer suffices, and also one on
// all signers of its domain.
func TestSignerPermissionMayCoverDomain(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		fixed fixedAuthorizer
		may   bool
	}{
		"by its name":           {fixed: fixedAuthorizer{decision: authz.Allow, onlyForName: "example.com/a"}, may: true},
		"all of its domain":     {fixed: fixedAuthorizer{decision: authz.Allow, onlyForName: "example.com/*"}, may: true},
		"another":               {fixed: fixedAuthorizer{decision: authz.Allow, onlyForName: "example.com/b"}, may: false},
		"no opinion":            {fixed: fixedAuthorizer{decision: authz.NoOpinion}, may: false},
		"denied":                {fixed: fixedAuthorizer{decision: authz.Deny}, may: false},
		"allowed with an error": {fixed: fixedAuthorizer{decision: authz.Allow, err: broken}, may: false},
		"an error":              {fixed: fixedAuthorizer{err: broken}, may: false},
	} {
		var requests []string
		test.fixed.requests = &requests
		if may := authz.MayOnSigner(t.Context(), test.fixed, &request.User{Name: "u"}, "sign", "example.com/a"); may != test.may {
			t.Errorf("%s: got %v, want %v", name, may, test.may)
		}
		if requests[0] != "u sign certificates.k8s.io signers example.com/a" {
			t.Errorf("%s: got requests %q, want \"u sign certificates.k8s.io signers example.com/a\"", name, requests)
		}
	}
}

// TestDecisionsAreCounted counts decisions by authorizer and result.
func TestDecisionsAreCounted(t *testing.T) {
	broken := errors.New("broken")
	reg := prometheus.NewPedanticRegistry()
	metrics := authz.NewMetrics(reg)
	for _, inner := range []fixedAuthorizer{
		{decision: authz.Allow},
		{decision: authz.Deny},
		{decision: authz.Deny},
		{decision: authz.Deny, err: broken},
		{},
		{err: broken},
	} {
		for _, counted := range []authz.Authorizer{metrics.Requests(inner), metrics.Decisions("RBAC", "rbac", inner)} {
			if d, _, err := counted.Authorize(t.Context(), &authz.Attributes{}); d != inner.decision || !errors.Is(err, inner.err) {
				t.Errorf("Authorize with inner authorizer %+v = %v, %v; want %v, %v", inner, d, err, inner.decision, inner.err)
			}
		}
	}
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetCounter() != nil {
				got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{
		"apiserver_authorization_decisions_total allowed": 1, "apiserver_authorization_decisions_total denied": 3,
		"authorization_attempts_total allowed": 1, "authorization_attempts_total denied": 3,
		"authorization_attempts_total no-opinion": 1, "authorization_attempts_total error": 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got counters %v, want %v", got, want)
	}
	if r, ok := metrics.Decisions("RBAC", "lists", rulesAuthorizer{}).(authorizer.RuleResolver); !ok {
		t.Error("Decisions of an authorizer with rules: got no RuleResolver, want one")
	} else if rules, err := r.RulesFor(t.Context(), nil, ""); err != nil || !rules.Incomplete {
		t.Errorf("RulesFor = %+v, %v; want incomplete rules and no error", rules, err)
	}
	if _, ok := metrics.Decisions("RBAC", "none", fixedAuthorizer{}).(authorizer.RuleResolver); ok {
		t.Error("Decisions of an authorizer without rules: got a RuleResolver, want none")
	}
}
