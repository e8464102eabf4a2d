package comparison

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// Reviews is an admission webhook that allows everything and records the reviews that it receives.
// The URL of a review names the session that caused it.
type Reviews struct {
	server *httptest.Server

	mu sync.Mutex
	// recorded holds the reviews of each path since they were last taken.
	recorded map[string][]any
}

// NewReviews starts a webhook. Close stops it.
func NewReviews() *Reviews {
	r := &Reviews{recorded: map[string][]any{}}
	r.server = httptest.NewTLSServer(r)
	return r
}

// Close stops the webhook.
func (r *Reviews) Close() { r.server.Close() }

// ServeHTTP records a review and allows it.
func (r *Reviews) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	review := decode("application/json", body)
	uid, ok := Lookup(review, "request.uid").(string)
	if err != nil || !ok {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.recorded[req.URL.Path] = append(r.recorded[req.URL.Path], review)
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": map[string]any{"uid": uid, "allowed": true}})
}

// take returns the reviews of a session since the last call, first those of the mutating webhook. A
// server repeats a request with the newest object if its cache is stale. Only the last review
// counts.
func (r *Reviews) take(s *Session) []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []any
	for _, kind := range reviewKinds {
		path := reviewPath(kind, s.Vars["ns"], s.Vars["port"])
		last := map[string]int{}
		for i, review := range r.recorded[path] {
			last[reviewSubject(review)] = i
		}
		for i, review := range r.recorded[path] {
			if last[reviewSubject(review)] == i {
				all = append(all, review)
			}
		}
		delete(r.recorded, path)
	}
	return all
}

// reviewSubject names the operation and the object of a review.
func reviewSubject(review any) string {
	var names []any
	for _, name := range []string{"operation", "kind", "subResource", "name"} {
		names = append(names, Lookup(review, "request."+name))
	}
	return JSONText(names)
}

var reviewKinds = []string{"Mutating", "Validating"}

func reviewPath(kind, namespace, port string) string {
	return "/" + kind + "/" + namespace + "/" + port
}

// start registers the webhook for the namespace of a scenario on both servers, and waits until they
// call it. Of the objects without a namespace, only those are reviewed whose names start with that
// of the scenario's.
func (r *Reviews) start(reference, product *Session) {
	for _, s := range r.steps() {
		Exchange(reference, product, s)
	}
	probe := Step{Method: http.MethodPost, Path: "/api/v1/namespaces/{ns}/configmaps?dryRun=All", Encoding: JSONBody,
		Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "probe"}}}
	for start := time.Now(); time.Since(start) < equalTimeout; <-time.After(pollInterval) {
		Exchange(reference, product, probe)
		if len(r.take(reference)) == len(reviewKinds) && len(r.take(product)) == len(reviewKinds) {
			return
		}
	}
}

// steps are the requests that register the webhook.
func (r *Reviews) steps() (steps []Step) {
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw}))
	for _, kind := range reviewKinds {
		hook := func(name, scope string) map[string]any {
			return map[string]any{
				"name": name, "sideEffects": "None", "failurePolicy": "Ignore", "matchPolicy": "Exact", "admissionReviewVersions": []any{"v1"},
				"clientConfig": map[string]any{"url": r.server.URL + reviewPath(kind, "{ns}", "{port}"), "caBundle": bundle},
				"rules":        []any{map[string]any{"operations": []any{"*"}, "apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "resources": []any{"*/*"}, "scope": scope}},
			}
		}
		within, without := hook("reviews.example.com", "Namespaced"), hook("global.example.com", "Cluster")
		within["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "{ns}"}}
		without["matchConditions"] = []any{map[string]any{"name": "own", "expression": "request.name.startsWith('{ns}-')"}}
		steps = append(steps, Step{Method: http.MethodPost, Path: webhooks(kind), Encoding: JSONBody, Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind + "WebhookConfiguration", "metadata": map[string]any{"name": "{ns}"}, "webhooks": []any{within, without},
		}})
	}
	return steps
}

// stop removes the webhook of a scenario.
func (r *Reviews) stop(reference, product *Session) {
	for _, kind := range reviewKinds {
		Exchange(reference, product, Step{Method: http.MethodDelete, Path: webhooks(kind) + "/{ns}"})
	}
	r.take(reference)
	r.take(product)
}

func webhooks(kind string) string {
	return "/apis/admissionregistration.k8s.io/v1/" + strings.ToLower(kind) + "webhookconfigurations"
}

// compare returns the differences between the reviews that a step caused.
func (r *Reviews) compare(reference, product *Session) (out []difference) {
	compareTrees(".review", reference.normalizeTree(r.take(reference)), product.normalizeTree(r.take(product)), &out)
	return out
}
