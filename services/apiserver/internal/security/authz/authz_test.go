package authz_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
)

// attributesOf returns the attributes of a request of alice.
func attributesOf(method, path string) *authz.Attributes {
	r := httptest.NewRequest(method, path, nil)
	return authz.AttributesOf(&request.User{Name: "alice"}, requestinfo.Resolve(r, nil))
}

// TestAttributesOfMethodsAndPaths checks the attributes for all methods and kinds of paths. It compares
// the message of a 403 response, which names all of them.
func TestAttributesOfMethodsAndPaths(t *testing.T) {
	methods := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}
	// resource returns a function that formats the message for a verb. what is "resource" or
	// "resource group".
	resourceMessage := func(what, scope string) func(verb string) string {
		return func(verb string) string {
			name, group, _ := strings.Cut(what, " ")
			return fmt.Sprintf(`User "alice" cannot %s resource %q in API group %q %s`, verb, name, group, scope)
		}
	}
	cluster, inA := "at the cluster scope", `in the namespace "a"`
	objectVerbs := "get get create update patch delete -"
	collectionVerbs := "list list create update patch deletecollection -"
	for path, test := range map[string]struct {
		text  func(verb string) string
		verbs string // in the order of methods, "-" for an empty verb
	}{
		"/api/v1/pods":                                   {text: resourceMessage("pods", cluster), verbs: collectionVerbs},
		"/api/v1/namespaces/a/pods":                      {text: resourceMessage("pods", inA), verbs: collectionVerbs},
		"/api/v1/namespaces/a/pods/p":                    {text: resourceMessage("pods", inA), verbs: objectVerbs},
		"/api/v1/namespaces/a/pods/p/log":                {text: resourceMessage("pods/log", inA), verbs: objectVerbs},
		"/api/v1/namespaces/a/pods/p/status":             {text: resourceMessage("pods/status", inA), verbs: objectVerbs},
		"/api/v1/namespaces":                             {text: resourceMessage("namespaces", cluster), verbs: collectionVerbs},
		"/api/v1/namespaces/a":                           {text: resourceMessage("namespaces", inA), verbs: objectVerbs},
		"/api/v1/namespaces/a/status":                    {text: resourceMessage("namespaces/status", inA), verbs: objectVerbs},
		"/api/v1/namespaces/a/finalize":                  {text: resourceMessage("namespaces/finalize", inA), verbs: objectVerbs},
		"/api/v1/nodes/n/proxy/x/y":                      {text: resourceMessage("nodes/proxy", cluster), verbs: objectVerbs},
		"/apis/apps/v1/namespaces/a/deployments":         {text: resourceMessage("deployments apps", inA), verbs: collectionVerbs},
		"/apis/apps/v1/namespaces/a/deployments/d/scale": {text: resourceMessage("deployments/scale apps", inA), verbs: objectVerbs},
		"/api/v1/namespaces/a/pods?watch=true": {
			text:  resourceMessage("pods", inA),
			verbs: "watch watch create update patch deletecollection -",
		},
		"/api/v1/watch/namespaces/a/pods/p": {text: resourceMessage("pods", inA), verbs: "watch watch watch watch watch watch watch"},
		"/api/v1/proxy/nodes/n":             {text: resourceMessage("nodes", cluster), verbs: "proxy proxy proxy proxy proxy proxy proxy"},
	} {
		for i, verb := range strings.Fields(test.verbs) {
			want := test.text(strings.TrimPrefix(verb, "-"))
			if got := authz.Message(attributesOf(methods[i], path)); got != want {
				t.Errorf("%s %s: got %s\nwant %s", methods[i], path, got, want)
			}
		}
	}
	for _, path := range []string{
		"/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/metrics", "/healthz/ping", "/openapi/v2",
	} {
		for _, m := range methods {
			want := fmt.Sprintf("User \"alice\" cannot %s path %q", strings.ToLower(m), path)
			if got := authz.Message(attributesOf(m, path)); got != want {
				t.Errorf("%s %s: got %s\nwant %s", m, path, got, want)
			}
		}
	}
}

// TestAttributesHaveSelectorsOfCollections checks which selectors of a request its attributes have.
func TestAttributesHaveSelectorsOfCollections(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn&labelSelector=a%3Db,c":               "[{= spec.nodeName n}] a=b c",
		"/api/v1/pods?watch=1&fieldSelector=x!%3Dy":                                        "[{!= x y}]",
		"/api/v1/namespaces/a/pods/p?watch=1&labelSelector=a":                              "[]", // single object
		"/api/v1/namespaces/a/pods/p?fieldSelector=a%3Db":                                  "[]", // single object
		"/api/v1/watch/pods?fieldSelector=a%3Db":                                           "[]", // not all old watch paths have selectors
		"/api/v1/pods?fieldSelector=&&labelSelector=((":                                    "[]", // selects everything
		"/api/v1/pods?labelSelector=a" + strings.Repeat(",a", requestinfo.MaxRequirements): "[]", // rejected later
	} {
		attrs := attributesOf(http.MethodGet, path)
		var fields []string
		for _, f := range attrs.FieldSelector {
			fields = append(fields, fmt.Sprintf("{%s %s %s}", f.Operator, f.Field, f.Value))
		}
		got := "[" + strings.Join(fields, " ") + "]"
		for _, l := range attrs.LabelSelector {
			got += " " + l.String()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if attrs := attributesOf(http.MethodDelete, "/api/v1/namespaces/a/pods?labelSelector=a"); len(attrs.LabelSelector) != 1 {
		t.Errorf("deletecollection: got label selectors %v, want one", attrs.LabelSelector)
	}
}

// TestSuiteServicePermissions checks that each service of the suite has the permissions it needs,
// and no others.
func TestSuiteServicePermissions(t *testing.T) {
	suite := authz.NewSuite()
	permitted := map[string][]string{ // requests by service
		"apiserver": {"GET /readyz"},
		"authn-webhook": {
			"GET /api/v1/pods", "GET /api/v1/nodes?watch=1", "GET /api/v1/secrets",
			"GET /api/v1/namespaces/a/serviceaccounts/x", "GET /readyz", "GET /api/v1/pods?watch=1",
			"GET /api/v1/namespaces/kube-system/secrets", "GET /api/v1/namespaces/kube-system/secrets?watch=1",
		},
		"authz-webhook": {
			"GET /apis/rbac.authorization.k8s.io/v1/roles", "GET /apis/rbac.authorization.k8s.io/v1/clusterrolebindings?watch=1",
			"GET /api/v1/pods?watch=1", "GET /api/v1/pods",
			"GET /api/v1/persistentvolumes", "GET /apis/storage.k8s.io/v1/volumeattachments", "GET /readyz",
		},
		"tokencleaner": {
			"GET /api/v1/namespaces/kube-system/secrets", "GET /api/v1/namespaces/kube-system/secrets?watch=1",
			"DELETE /api/v1/namespaces/kube-system/secrets/x", "GET /readyz",
			"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tokencleaner",
			"POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		},
		"bootstrapsigner": {
			"GET /api/v1/namespaces/kube-system/secrets", "GET /api/v1/namespaces/kube-system/secrets?watch=1",
			"PUT /api/v1/namespaces/kube-public/configmaps/cluster-info", "POST /api/v1/namespaces/kube-public/configmaps", "GET /readyz",
			"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bootstrapsigner",
			"POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		},
		"console": {
			"GET /metrics", "POST /apis/authentication.k8s.io/v1/tokenreviews",
			"POST /apis/authorization.k8s.io/v1/subjectaccessreviews", "GET /readyz",
		},
	}
	allRequests := []string{ // requests, at first those that no service may send
		"GET /metrics", "POST /api/v1/namespaces/a/pods", "DELETE /api/v1/namespaces/a/secrets/x",
		"GET /api/v1/namespaces/a/configmaps/x", "DELETE /api/v1/namespaces/kube-system/secrets",
		"PUT /api/v1/namespaces/kube-system/secrets/x", "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/other",
		"PUT /api/v1/namespaces/kube-public/configmaps/other",
		"POST /api/v1/namespaces/kube-system/serviceaccounts/x/token", "GET /api/v1/namespaces/a/pods/p/log",
		"GET /debug/pprof/", "GET /metrics/slis", "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
		"POST /apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews",
	}
	for _, list := range permitted {
		allRequests = append(allRequests, list...)
	}
	isAllowed := func(name string, groups []string, line string) bool {
		method, path, _ := strings.Cut(line, " ")
		attrs := attributesOf(method, path)
		attrs.User = &request.User{Name: name, Groups: groups}
		decision, _, err := suite.Authorize(t.Context(), attrs)
		if err != nil || decision == authz.Deny {
			t.Errorf("%s: user %s: Authorize = %v, %v; want Allow or NoOpinion, no error", line, name, decision, err)
		}
		return decision == authz.Allow
	}
	for service, list := range permitted {
		allowed := map[string]bool{}
		for _, line := range list {
			allowed[line] = true
		}
		for _, line := range allRequests {
			name := "system:binnacle:" + service
			if got := isAllowed(name, []string{"system:binnacle"}, line); got != allowed[line] {
				t.Errorf("%s: service %s: allowed: %t, want %t", line, service, got, allowed[line])
			}
			// Both the name and the group are required.
			for _, other := range []request.User{
				{Name: name, Groups: []string{api.GroupAuthenticated}},
				{Name: "system:binnacle:other", Groups: []string{"system:binnacle"}},
				{Name: service, Groups: []string{"system:binnacle"}},
			} {
				if isAllowed(other.Name, other.Groups, line) {
					t.Errorf("%s: user %s with groups %v: allowed, want not allowed", line, other.Name, other.Groups)
				}
			}
		}
	}
	if decision, _, _ := suite.Authorize(t.Context(), &authorizer.Attributes{}); decision != authz.NoOpinion {
		t.Errorf("Authorize without a user = %v, want NoOpinion", decision)
	}
}

// TestControllersServiceHasTheRightsOfItsControllers checks which requests the controllers service may
// send. It may read, change and delete objects of every resource, but create only some.
func TestControllersServiceHasTheRightsOfItsControllers(t *testing.T) {
	suite := authz.NewSuite()
	isAllowed := func(line string) bool {
		method, path, _ := strings.Cut(line, " ")
		attrs := attributesOf(method, path)
		attrs.User = &request.User{Name: "system:binnacle:controllers", Groups: []string{"system:binnacle"}}
		decision, _, err := suite.Authorize(t.Context(), attrs)
		return err == nil && decision == authz.Allow
	}
	for _, line := range []string{
		"GET /readyz", "GET /api", "GET /apis/apps/v1",
		"GET /api/v1/namespaces/a/configmaps/x", "GET /apis/example.com/v1/widgets?watch=1",
		"PATCH /apis/example.com/v1/namespaces/a/widgets/x", "DELETE /apis/example.com/v1/namespaces/a/widgets",
		"PUT /api/v1/namespaces/a/finalize", "PUT /api/v1/namespaces/a/resourcequotas/q/status",
		"POST /api/v1/namespaces/a/serviceaccounts", "POST /api/v1/namespaces/a/configmaps", "POST /api/v1/namespaces/a/events",
		"POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/controllers",
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
	} {
		if !isAllowed(line) {
			t.Errorf("%s: got not allowed, want allowed", line)
		}
	}
	for _, line := range []string{
		"GET /metrics", "GET /debug/pprof/", "POST /api/v1/namespaces/a/pods", "POST /api/v1/namespaces/a/secrets",
		"POST /api/v1/namespaces/kube-system/serviceaccounts/x/token", "POST /api/v1/namespaces/a/pods/p/exec",
		"POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "POST /apis/coordination.k8s.io/v1/namespaces/a/leases",
		"POST /apis/authentication.k8s.io/v1/tokenreviews", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
	} {
		if isAllowed(line) {
			t.Errorf("%s: got allowed, want not allowed", line)
		}
	}
}
