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

func attributesOf(method, path string) *authz.Attributes {
	r := httptest.NewRequest(method, path, nil)
	return authz.AttributesOf(&request.User{Name: "alice"}, requestinfo.Resolve(r, nil))
}

// TestAttributesOfMethodsAndPaths covers all methods and paths. It compares the attributes in the wording of a
// 403 response.
func TestAttributesOfMethodsAndPaths(t *testing.T) {
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
	resource := func(what, where string) func(string) string {
		return func(verb string) string {
			res, group, _ := strings.Cut(what, " ")
			return fmt.Sprintf(`User "alice" cannot %s resource %q in API group %q %s`, verb, res, group, where)
		}
	}
	cluster, inA := "at the cluster scope", `in the namespace "a"`
	one := "get get create update patch delete -"
	many := "list list create update patch deletecollection -"
	for path, c := range map[string]struct {
		text  func(string) string
		verbs string // by method
	}{
		"/api/v1/pods":                                   {text: resource("pods", cluster), verbs: many},
		"/api/v1/namespaces/a/pods":                      {text: resource("pods", inA), verbs: many},
		"/api/v1/namespaces/a/pods/p":                    {text: resource("pods", inA), verbs: one},
		"/api/v1/namespaces/a/pods/p/log":                {text: resource("pods/log", inA), verbs: one},
		"/api/v1/namespaces/a/pods/p/status":             {text: resource("pods/status", inA), verbs: one},
		"/api/v1/namespaces":                             {text: resource("namespaces", cluster), verbs: many},
		"/api/v1/namespaces/a":                           {text: resource("namespaces", inA), verbs: one},
		"/api/v1/namespaces/a/status":                    {text: resource("namespaces/status", inA), verbs: one},
		"/api/v1/namespaces/a/finalize":                  {text: resource("namespaces/finalize", inA), verbs: one},
		"/api/v1/nodes/n/proxy/x/y":                      {text: resource("nodes/proxy", cluster), verbs: one},
		"/apis/apps/v1/namespaces/a/deployments":         {text: resource("deployments apps", inA), verbs: many},
		"/apis/apps/v1/namespaces/a/deployments/d/scale": {text: resource("deployments/scale apps", inA), verbs: one},
		"/api/v1/namespaces/a/pods?watch=true": {text: resource("pods", inA),
			verbs: "watch watch create update patch deletecollection -"},
		"/api/v1/watch/namespaces/a/pods/p": {text: resource("pods", inA), verbs: "watch watch watch watch watch watch watch"},
		"/api/v1/proxy/nodes/n":             {text: resource("nodes", cluster), verbs: "proxy proxy proxy proxy proxy proxy proxy"},
	} {
		for i, verb := range strings.Fields(c.verbs) {
			want := c.text(strings.TrimPrefix(verb, "-"))
			if got := authz.Message(attributesOf(methods[i], path)); got != want {
				t.Errorf("%s %s: got %s\nwant %s", methods[i], path, got, want)
			}
		}
	}
	for _, path := range []string{"/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/metrics", "/healthz/ping", "/openapi/v2"} {
		for _, m := range methods {
			want := fmt.Sprintf("User \"alice\" cannot %s path %q", strings.ToLower(m), path)
			if got := authz.Message(attributesOf(m, path)); got != want {
				t.Errorf("%s %s: got %s\nwant %s", m, path, got, want)
			}
		}
	}
}

// TestSelectorsOfRequests checks which selectors of a request its attributes have.
func TestSelectorsOfRequests(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn&labelSelector=a%3Db,c": "[{= spec.nodeName n}] a=b c",
		"/api/v1/pods?watch=1&fieldSelector=x!%3Dy":                          "[{!= x y}]",
		"/api/v1/namespaces/a/pods/p?watch=1&labelSelector=a":                "[]", // single object
		"/api/v1/namespaces/a/pods/p?fieldSelector=a%3Db":                    "[]", // single object
		"/api/v1/watch/pods?fieldSelector=a%3Db":                             "[]", // not all old watch paths have selectors
		"/api/v1/pods?fieldSelector=&&labelSelector=((":                      "[]", // selects everything
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
		t.Error("got no selector for deletecollection, want one")
	}
}

// TestSuiteServicePermissions checks that each service of the suite has the permissions it needs,
// and no others.
func TestSuiteServicePermissions(t *testing.T) {
	suite := authz.NewSuite()
	may := map[string][]string{
		"apiserver": {"GET /readyz"},
		"authn-webhook": {
			"GET /api/v1/pods", "GET /api/v1/nodes?watch=1", "GET /api/v1/secrets", "GET /api/v1/namespaces/a/serviceaccounts/x", "GET /readyz",
			"GET /api/v1/pods?watch=1", "GET /api/v1/namespaces/kube-system/secrets", "GET /api/v1/namespaces/kube-system/secrets?watch=1",
		},
		"authz-webhook": {
			"GET /apis/rbac.authorization.k8s.io/v1/roles", "GET /apis/rbac.authorization.k8s.io/v1/clusterrolebindings?watch=1", "GET /api/v1/pods?watch=1", "GET /api/v1/pods",
			"GET /api/v1/persistentvolumes", "GET /apis/storage.k8s.io/v1/volumeattachments", "GET /readyz",
		},
		"tokencleaner": {
			"GET /api/v1/namespaces/kube-system/secrets", "GET /api/v1/namespaces/kube-system/secrets?watch=1", "DELETE /api/v1/namespaces/kube-system/secrets/x", "GET /readyz",
			"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tokencleaner", "POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		},
		"bootstrapsigner": {
			"GET /api/v1/namespaces/kube-system/secrets", "GET /api/v1/namespaces/kube-system/secrets?watch=1", "PUT /api/v1/namespaces/kube-public/configmaps/cluster-info", "POST /api/v1/namespaces/kube-public/configmaps", "GET /readyz",
			"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bootstrapsigner", "POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		},
		"console": {
			"GET /metrics", "POST /apis/authentication.k8s.io/v1/tokenreviews", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", "GET /readyz",
		},
	}
	every := []string{
		"GET /metrics", "POST /api/v1/namespaces/a/pods", "DELETE /api/v1/namespaces/a/secrets/x", "GET /api/v1/namespaces/a/configmaps/x", "DELETE /api/v1/namespaces/kube-system/secrets",
		"PUT /api/v1/namespaces/kube-system/secrets/x", "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/other",
		"PUT /api/v1/namespaces/kube-public/configmaps/other", "POST /api/v1/namespaces/kube-system/serviceaccounts/x/token", "GET /api/v1/namespaces/a/pods/p/log",
		"GET /debug/pprof/", "GET /metrics/slis", "POST /apis/authentication.k8s.io/v1/selfsubjectreviews", "POST /apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews",
	}
	for _, list := range may {
		every = append(every, list...)
	}
	isAllowed := func(name string, groups []string, line string) bool {
		method, path, _ := strings.Cut(line, " ")
		attrs := attributesOf(method, path)
		attrs.User = &request.User{Name: name, Groups: groups}
		decision, _, err := suite.Authorize(t.Context(), attrs)
		if err != nil || decision == authz.Deny {
			t.Errorf("%s %s: got %v %v; want no error, other than %v", name, line, decision, err, authz.Deny)
		}
		return decision == authz.Allow
	}
	for service, list := range may {
		allowed := map[string]bool{}
		for _, line := range list {
			allowed[line] = true
		}
		for _, line := range every {
			name := "system:binnacle:" + service
			if got := isAllowed(name, []string{"system:binnacle"}, line); got != allowed[line] {
				t.Errorf("%s %s: got %v, want %v", service, line, got, allowed[line])
			}
			if isAllowed(name, []string{api.GroupAuthenticated}, line) || isAllowed("system:binnacle:other", []string{"system:binnacle"}, line) || isAllowed(service, []string{"system:binnacle"}, line) {
				t.Errorf("%s: got allowed for a user other than %s, want not allowed", line, service)
			}
		}
	}
	if decision, _, _ := suite.Authorize(t.Context(), &authorizer.Attributes{}); decision != authz.NoOpinion {
		t.Error("got allowed without a user, want not allowed")
	}
}

// TestControllersServiceHasTheRightsOfItsControllers checks the controllers service apart, because
// it may read, change and delete objects of every resource.
func TestControllersServiceHasTheRightsOfItsControllers(t *testing.T) {
	suite := authz.NewSuite()
	may := func(line string) bool {
		method, path, _ := strings.Cut(line, " ")
		attrs := attributesOf(method, path)
		attrs.User = &request.User{Name: "system:binnacle:controllers", Groups: []string{"system:binnacle"}}
		decision, _, err := suite.Authorize(t.Context(), attrs)
		return err == nil && decision == authz.Allow
	}
	for _, line := range []string{
		"GET /readyz", "GET /api", "GET /apis/apps/v1", "GET /api/v1/namespaces/a/configmaps/x", "GET /apis/example.com/v1/widgets?watch=1",
		"PATCH /apis/example.com/v1/namespaces/a/widgets/x", "DELETE /apis/example.com/v1/namespaces/a/widgets",
		"PUT /api/v1/namespaces/a/finalize", "PUT /api/v1/namespaces/a/resourcequotas/q/status",
		"POST /api/v1/namespaces/a/serviceaccounts", "POST /api/v1/namespaces/a/configmaps", "POST /api/v1/namespaces/a/events",
		"POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases", "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/controllers",
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
	} {
		if !may(line) {
			t.Errorf("%s: got not allowed, want allowed", line)
		}
	}
	for _, line := range []string{
		"GET /metrics", "GET /debug/pprof/", "POST /api/v1/namespaces/a/pods", "POST /api/v1/namespaces/a/secrets",
		"POST /api/v1/namespaces/kube-system/serviceaccounts/x/token", "POST /api/v1/namespaces/a/pods/p/exec",
		"POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "POST /apis/coordination.k8s.io/v1/namespaces/a/leases",
		"POST /apis/authentication.k8s.io/v1/tokenreviews", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
	} {
		if may(line) {
			t.Errorf("%s: got allowed, want not allowed", line)
		}
	}
}
