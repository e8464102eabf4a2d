package build

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestOperationsAreValidatedAfterMutation checks that objects that are not stored are validated
// after mutating and before validating webhooks.
func TestOperationsAreValidatedAfterMutation(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)

	// 1. A mutating webhook makes each invalid object valid if mutates is set. A validating webhook
	// counts its calls.
	patches := map[string]string{
		"binding":              `[{"op":"add","path":"/target","value":{"kind":"Node","name":"n1"}}]`,
		"bindings":             `[{"op":"add","path":"/metadata/name","value":"q"},{"op":"add","path":"/target","value":{"name":"n2"}}]`,
		"eviction":             `[{"op":"add","path":"/metadata/name","value":"q"}]`,
		"subjectaccessreviews": `[{"op":"add","path":"/spec/user","value":"alice"}]`,
		"tokenreviews":         `[{"op":"add","path":"/spec/token","value":"x"}]`,
	}
	var mutates atomic.Bool
	var validated atomic.Int64
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID, SubResource string
				Resource         struct{ Resource string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		patch := ""
		if r.URL.Path == "/validate" {
			validated.Add(1)
		} else if mutated := review.Request; mutates.Load() {
			resource := mutated.SubResource
			if resource == "" {
				resource = mutated.Resource.Resource
			}
			patch = fmt.Sprintf(`,"patchType":"JSONPatch","patch":%q`, base64.StdEncoding.EncodeToString([]byte(patches[resource])))
		}
		fmt.Fprintf(w,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true%s}}`,
			review.Request.UID, patch)
	}))
	t.Cleanup(hook.Close)
	for _, name := range []string{"p", "q"} {
		api.mustSend(201, "POST", podsPath, `{"metadata":{"name":"`+name+`"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	}
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	for path, kind := range map[string]string{"/change": "mutating", "/validate": "validating"} {
		api.mustSend(201, "POST", "/apis/admissionregistration.k8s.io/v1/"+kind+"webhookconfigurations",
			fmt.Sprintf(`{"metadata":{"name":"h"},"webhooks":[{"name":"a.b.c","clientConfig":{"url":%q,"caBundle":%q},
			"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["pods/binding","bindings","pods/eviction","subjectaccessreviews","tokenreviews"],"operations":["CREATE"]}],
			"sideEffects":"None","admissionReviewVersions":["v1"]}]}`, hook.URL+path, ca))
	}

	// 2. Without the mutation the object is rejected before the validating webhook. With it, both
	// accept it.
	for _, test := range []struct {
		path, body string
		code       int
		message    string
	}{
		{
			path:    podsPath + "/p/binding",
			body:    `{"metadata":{"name":"p"},"target":{}}`,
			code:    422,
			message: `Binding "p" is invalid: target.name: Required value`,
		},
		{
			path:    "/api/v1/namespaces/default/bindings",
			body:    `{"metadata":{},"target":{}}`,
			code:    422,
			message: `Binding "" is invalid: target.name: Required value`,
		},
		{
			path:    podsPath + "/q/eviction",
			body:    `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"other"}}`,
			code:    400,
			message: "name in URL does not match name in Eviction object",
		},
		{
			path:    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			body:    `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`,
			code:    422,
			message: `.authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified`,
		},
		{
			path:    "/apis/authentication.k8s.io/v1/tokenreviews",
			body:    `{"spec":{}}`,
			code:    400,
			message: "token is required for TokenReview in authentication",
		},
	} {
		mutates.Store(false)
		before := validated.Load()
		if response := api.send("POST", test.path, test.body); response.code != test.code || response.field("message") != test.message {
			t.Errorf("%s: got status %d: %s, want status %d and %v", test.path, response.code, response.body, test.code, test.message)
		}
		if n := validated.Load() - before; n != 0 {
			t.Errorf("%s: got %d calls of validating webhooks for an invalid object, want none", test.path, n)
		}
		mutates.Store(true)
		api.mustSend(201, "POST", test.path, test.body)
		if n := validated.Load() - before; n != 1 {
			t.Errorf("%s: got %d calls of validating webhooks, want 1", test.path, n)
		}
	}
	if node := api.get(podsPath+"/p").field("spec", "nodeName"); node != "n1" {
		t.Errorf("got node %v, want n1", node)
	}
}
