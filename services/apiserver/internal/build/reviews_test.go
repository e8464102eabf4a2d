package build

import (
	"fmt"
	"strings"
	"testing"
)

// TestInvalidReviewsAreRejected also checks that a local review stays in its namespace.
func TestInvalidReviewsAreRejected(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	const reviews, local = "/apis/authorization.k8s.io/v1", "/namespaces/default/localsubjectaccessreviews"
	review := func(kind, namespace, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":%q,"metadata":{"namespace":%q},"spec":{%s}}`,
			kind, namespace, spec)
	}
	const (
		pods = `"resourceAttributes":{"verb":"get","resource":"pods","namespace":"default"}`
		path = `"nonResourceAttributes":{"verb":"get","path":"/x"}`
		by   = `"user":"u",`
	)
	subject := func(spec string) string { return review("SubjectAccessReview", "", spec) }
	within := func(namespace, spec string) string { return review("LocalSubjectAccessReview", namespace, spec) }
	const neither = "spec.resourceAttributes: Invalid value: \"null\": exactly one of nonResourceAttributes or resourceAttributes must be specified"
	api.steps(t, []step{
		{name: "a review of a user", method: "POST", path: reviews + "/subjectaccessreviews", body: subject(by + pods), code: 201},
		{
			name:   "a review of a group",
			method: "POST",
			path:   reviews + "/subjectaccessreviews",
			body:   subject(`"groups":["system:masters"],` + pods),
			code:   201,
			has:    []string{`"allowed":true`},
		},
		{name: "a review of a path", method: "POST", path: reviews + "/subjectaccessreviews", body: subject(by + path), code: 201},
		{
			name:   "a review without user",
			method: "POST",
			path:   reviews + "/subjectaccessreviews",
			body:   subject(pods),
			code:   422,
			has:    []string{"spec.user: Invalid value: \"\": at least one of user or group must be specified"},
		},
		{
			name:   "a review without attributes",
			method: "POST",
			path:   reviews + "/subjectaccessreviews",
			body:   subject(`"user":"u"`),
			code:   422,
			has:    []string{neither},
		},
		{
			name:   "a review of a resource and a path",
			method: "POST",
			path:   reviews + "/subjectaccessreviews",
			body:   subject(by + pods + "," + path),
			code:   422,
			has:    []string{"cannot be specified in combination with resourceAttributes"},
		},
		{
			name:   "an unknown dry run option",
			method: "POST",
			path:   reviews + "/subjectaccessreviews?dryRun=Odd",
			body:   subject(by + pods),
			code:   422,
			has:    []string{"dryRun"},
		},
		{name: "invalid JSON", method: "POST", path: reviews + "/subjectaccessreviews", body: `{"spec":`, code: 400},
		{
			name:   "a review with a label",
			method: "POST",
			path:   reviews + "/subjectaccessreviews",
			body:   strings.Replace(subject(by+pods), `"namespace":""`, `"labels":{"a":"b"}`, 1),
			code:   422,
			has:    []string{"metadata: Invalid value", "must be empty"},
		},
		{
			name:   "a self review without attributes",
			method: "POST",
			path:   reviews + "/selfsubjectaccessreviews",
			body:   review("SelfSubjectAccessReview", "", ""),
			code:   422,
			has:    []string{neither},
		},
		{
			name:   "a TokenReview without a token",
			method: "POST",
			path:   "/apis/authentication.k8s.io/v1/tokenreviews",
			body:   `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview"}`,
			code:   400,
			has:    []string{"token is required for TokenReview in authentication"},
		},

		{name: "a local review in its namespace", method: "POST", path: reviews + local, body: within("default", by+pods), code: 201},
		{name: "a local review without namespace", method: "POST", path: reviews + local, body: within("", by+pods), code: 201},
		{
			name:   "a local review with another namespace in its metadata",
			method: "POST",
			path:   reviews + local,
			body:   within("other", by+pods),
			code:   400,
			has:    []string{"the namespace of the provided object does not match the namespace sent on the request"},
		},
		{
			name:   "a local review of another namespace",
			method: "POST",
			path:   reviews + local,
			body:   within("default", by+strings.Replace(pods, `"default"`, `"other"`, 1)),
			code:   422,
			has:    []string{`spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace`},
		},
		{
			name:   "a local review of a path",
			method: "POST",
			path:   reviews + local,
			body:   within("default", by+path),
			code:   422,
			has:    []string{"spec.nonResourceAttributes: Invalid value", "disallowed on this kind of request"},
			lacks:  []string{"resourceAttributes.namespace"},
		},
		{
			name:   "a local review without user",
			method: "POST",
			path:   reviews + local,
			body:   within("default", pods),
			code:   422,
			has:    []string{"at least one of user or group"},
		},
	})
	result := api.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`,
		append(asUser("alice"), "Impersonate-Extra-Of", "a", "Impersonate-Extra-Other", "c")...)
	if got := fmt.Sprint(result.field("status", "userInfo", "extra")); got != "map[of:[a] other:[c]]" {
		t.Errorf("got status %d, extra %s, want map[of:[a] other:[c]]", result.code, got)
	}
}

// TestTokenRequestIsRejected covers missing accounts, invalid requests, and rejections of webhooks.
func TestTokenRequestIsRejected(t *testing.T) {
	t.Parallel()
	api := startServer(t, issuing(signingKey(t)))
	api.mustSend(201, "POST", accounts, object("ServiceAccount", "sa", ""))
	api.mustSend(201, "POST", accounts, object("ServiceAccount", "none", ""))
	api.mustSend(200, "DELETE", accounts+"/none", "")
	token := func(name, namespace, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"name":%q,"namespace":%q},"spec":{%s}}`,
			name, namespace, spec)
	}
	const at = accounts + "/sa/token"
	api.steps(t, []step{
		{
			name:   "the name of the account",
			method: "POST",
			path:   at,
			body:   token("sa", "default", ""),
			code:   201,
			has:    []string{`"expirationSeconds":3600`, `"token":"`},
		},
		{
			name:   "another name",
			method: "POST",
			path:   at,
			body:   token("sb", "", ""),
			code:   422,
			has:    []string{"metadata.name", "must match the service account name if specified"},
		},
		{
			name:   "another namespace",
			method: "POST",
			path:   at,
			body:   token("sa", "other", ""),
			code:   400,
			has:    []string{"the namespace of the provided object does not match the namespace sent on the request"},
		},
		{
			name:   "a missing account",
			method: "POST",
			path:   accounts + "/none/token",
			body:   token("", "", ""),
			code:   404,
			has:    []string{`serviceaccounts \"none\" not found`},
		},
		{
			name:   "an unknown dry run option",
			method: "POST",
			path:   at + "?dryRun=Odd",
			body:   token("", "", ""),
			code:   422,
			has:    []string{"dryRun"},
		},
		{name: "invalid JSON", method: "POST", path: at, body: `{"spec":`, code: 400},
		{
			name:   "another kind",
			method: "POST",
			path:   at,
			body:   `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview"}`,
			code:   400,
		},
		{name: "the minimum lifetime", method: "POST", path: at, body: token("", "", `"expirationSeconds":600`), code: 201},
		{
			name:   "less than the minimum lifetime",
			method: "POST",
			path:   at,
			body:   token("", "", `"expirationSeconds":599`),
			code:   422,
			has:    []string{"may not specify a duration less than 10 minutes"},
			lacks:  []string{`"token"`},
		},
		{name: "the maximum lifetime", method: "POST", path: at, body: token("", "", `"expirationSeconds":4294967296`), code: 201},
		{
			name:   "more than the maximum lifetime",
			method: "POST",
			path:   at,
			body:   token("", "", `"expirationSeconds":4294967297`),
			code:   422,
			has:    []string{"may not specify a duration larger than 2^32 seconds"},
			lacks:  []string{`"token"`},
		},
	})
	for _, kind := range []string{"mutating", "validating"} {
		hooks := "/apis/admissionregistration.k8s.io/v1/" + kind + "webhookconfigurations"
		api.mustSend(201, "POST", hooks,
			`{"metadata":{"name":"h"},"webhooks":[{"name":"a.b.c","clientConfig":{"url":"https://127.0.0.1:1"},"failurePolicy":"Fail",
			"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["serviceaccounts/token"],"operations":["CREATE"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}]}`)
		api.waitUntil(kind+" webhooks are asked", func() bool {
			response := api.send("POST", at, token("", "", ""))
			return response.code == 500 && strings.Contains(string(response.body), "failed calling webhook") &&
				!strings.Contains(string(response.body), `"token":"`)
		})
		api.mustSend(200, "DELETE", hooks+"/h", "")
		api.waitUntil("tokens are made again", func() bool { return api.send("POST", at, token("", "", "")).code == 201 })
	}
}
