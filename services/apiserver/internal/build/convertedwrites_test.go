package build

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// converters is a conversion webhook that records requested versions and can block.
type converters struct {
	*httptest.Server
	calls chan string // requested versions
	gone  chan string // requested versions whose caller has gone while the webhook blocked

	convert func(object map[string]any) // additional change, if set

	mu   sync.Mutex
	hold chan struct{} // nil: responds at once
}

func newConverters(t *testing.T) *converters {
	c := &converters{calls: make(chan string, 1000), gone: make(chan string, 1000)}
	c.Server = httptest.NewTLSServer(c)
	t.Cleanup(c.Close)
	return c
}

// ServeHTTP implements http.Handler.
func (c *converters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID               string
			DesiredAPIVersion string
			Objects           []map[string]any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	hold := c.hold
	c.mu.Unlock()
	c.calls <- review.Request.DesiredAPIVersion
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			c.gone <- review.Request.DesiredAPIVersion
			return
		}
	}
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
		if c.convert != nil {
			c.convert(o)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": map[string]any{
		"uid": review.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": review.Request.Objects,
	}})
}

// holding blocks responses until release is called.
func (c *converters) holding() (release func()) {
	hold := make(chan struct{})
	c.mu.Lock()
	c.hold = hold
	c.mu.Unlock()
	return sync.OnceFunc(func() {
		c.mu.Lock()
		c.hold = nil
		c.mu.Unlock()
		close(hold)
	})
}

// forget drops the recorded requests.
func (c *converters) forget() (n int) {
	for {
		select {
		case <-c.calls:
			n++
		default:
			return n
		}
	}
}

func (c *converters) ca() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
}

// definition returns a definition with four versions that the webhook converts; v1 is stored.
func (c *converters) definition(plural, kind string) string {
	var versions []string
	for i := range 4 {
		versions = append(versions,
			fmt.Sprintf(`{"name":"v%d","served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`,
				i+1, i == 0))
	}
	return fmt.Sprintf(`{"metadata":{"name":"%[1]s.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":%[1]q,"singular":%[1]q,"kind":%[2]q},"versions":[%[3]s],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%[4]q,"caBundle":%[5]q}}}}}`,
		plural, kind, strings.Join(versions, ","), c.URL, c.ca())
}

// TestWriteEndsInTimeDuringConversion checks that a write whose object is converted by a hanging
// webhook times out, and releases its seats meanwhile.
func TestWriteEndsInTimeDuringConversion(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	converters := newConverters(t)
	const things, maps = "/apis/example.com/v1/namespaces/default/things", "/api/v1/namespaces/default/configmaps"
	api.mustSend(201, "POST", definitionsPath, converters.definition("things", "Thing"))
	api.mustSend(201, "POST", things, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"param"}}`)
	large := strings.Repeat("x", 100<<10)
	thing := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":%q},"spec":{"large":%q}}`, name, large)
	}
	var owners []string
	for i := range 4 {
		owners = append(owners,
			fmt.Sprintf(`{"manager":"m%[1]d","operation":"Apply","apiVersion":"example.com/v%[1]d","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:f%[1]d":{}}}}`,
				i+1))
	}
	api.mustSend(201, "POST", things, thing("owned"))
	for _, patch := range []string{
		`{"spec":{"f1":1,"f2":1,"f3":1,"f4":1}}`,
		`{"metadata":{"managedFields":[` + strings.Join(owners, ",") + `]}}`,
	} {
		api.mustSend(200, "PATCH", things+"/owned", patch, "Content-Type", "application/merge-patch+json")
	}
	policy := func(resources, more string) string {
		return `{"metadata":{"name":"p.example.com"},"spec":{` + more +
			`"matchConstraints":{"resourceRules":[{"operations":["CREATE"],` + resources +
			`}]},"validations":[{"expression":"object != null"}]}}`
	}
	const (
		policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
		bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
	)
	mapOf := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"data":{"large":%q}}`, name, large)
	}
	for name, door := range map[string]struct {
		configure           map[string]string
		method, path, media string
		body                func(name string) string
	}{
		"a webhook that wants another version": {
			configure: map[string]string{hooksPath: fmt.Sprintf(`{"metadata":{"name":"p.example.com"},"webhooks":[{"name":"a.b.c","clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],
				"rules":[{"apiGroups":["example.com"],"apiVersions":["v2"],"resources":["things"],"operations":["CREATE"]}]}]}`, converters.URL, converters.ca())},
			method: "POST",
			path:   things + "?fieldManager=late",
			media:  "application/json",
			body:   thing,
		},
		"a policy that wants another version": {
			configure: map[string]string{
				policies: policy(`"apiGroups":["example.com"],"apiVersions":["v2"],"resources":["things"]`, ""),
				bindings: `{"metadata":{"name":"p.example.com"},"spec":{"policyName":"p.example.com","validationActions":["Deny"]}}`,
			},
			method: "POST",
			path:   things + "?fieldManager=late",
			media:  "application/json",
			body:   thing,
		},
		"a parameter in another version": {
			configure: map[string]string{
				policies: policy(`"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]`,
					`"paramKind":{"apiVersion":"example.com/v2","kind":"Thing"},`),
				bindings: `{"metadata":{"name":"p.example.com"},"spec":{"policyName":"p.example.com","validationActions":["Deny"],"paramRef":{"name":"param","namespace":"default","parameterNotFoundAction":"Deny"}}}`,
			},
			method: "POST",
			path:   maps + "?fieldManager=late",
			media:  "application/json",
			body:   mapOf,
		},
		"owners that patched other versions": {
			method: "PATCH",
			path:   things + "/owned?fieldManager=late",
			media:  "application/merge-patch+json",
			body: func(name string) string {
				return fmt.Sprintf(`{"spec":{"more":%q}}`, name)
			},
		},
		"owners that applied other versions": {
			method: "PATCH",
			path:   things + "/owned?fieldManager=late&force=true",
			media:  "application/apply-patch+yaml",
			body: func(name string) string {
				return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","spec":{"more":%q}}`, name)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for path, body := range door.configure {
				api.mustSend(201, "POST", path, body)
				defer api.mustSend(200, "DELETE", path+"/p.example.com", "")
			}
			release := converters.holding()
			defer release()
			converters.forget()
			response := api.send(door.method, door.path+"&timeout=500ms", door.body("late"), "Content-Type", door.media)
			calls := converters.forget()
			left := api.get(things + "/owned")
			if response.code != 504 {
				t.Errorf("hanging webhook: got status %d: %.300s, want 504", response.code, response.body)
			}
			if calls != 1 {
				t.Errorf("hanging webhook: got %d calls, want 1", calls)
			}
			if !strings.Contains(string(left.body), `"manager":"m4"`) {
				t.Errorf("after a canceled apply: got %.1000s, want the field manager m4", left.body)
			}
			var all sync.WaitGroup
			defer all.Wait()
			defer release()
			for i := range max(1, runtime.GOMAXPROCS(0)-1) {
				all.Go(func() {
					api.send(door.method, door.path+"&timeout=30s", door.body(fmt.Sprint("held-", i)), "Content-Type", door.media)
				})
				select {
				case <-converters.calls:
				case <-time.After(20 * time.Second):
					t.Fatal("got no call of the webhook within 20 s, want one")
				}
			}
			begin := time.Now()
			response = api.send("POST", "/api/v1/namespaces/default/secrets?dryRun=All&timeout=20s",
				fmt.Sprintf(`{"metadata":{"name":"other"},"stringData":{"large":%q}}`, large))
			if response.code != 201 {
				t.Errorf("another large request meanwhile: got status %d after %v: %.300s, want 201", response.code, time.Since(begin), response.body)
			}
		})
	}
}
