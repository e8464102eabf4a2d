package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
)

// server handles all requests.
type server struct {
	api     kubernetes.Interface
	callers *callers
	widgets *widgets
}

// discoveryDocuments are the discovery and OpenAPI documents by path.
var discoveryDocuments = map[string]string{
	"/apis/ext.example.com/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"ext.example.com/v1","resources":[
		{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get","list","watch","create"],"shortNames":["wd"],"categories":["all"]},
		{"name":"widgets/echo","singularName":"","namespaced":true,"kind":"Widget","verbs":["get"]}]}`,
	"/apis/metrics.k8s.io/v1beta1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[
		{"name":"nodes","singularName":"","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]},
		{"name":"pods","singularName":"","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]}`,
	"/openapi/v3": `{"paths":{"apis/ext.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/ext.example.com/v1?hash=1"}}}`,
	"/openapi/v3/apis/ext.example.com/v1": `{"openapi":"3.0.0","info":{"title":"Widgets","version":"v1"},
		"paths":{"/apis/ext.example.com/v1/namespaces/{namespace}/widgets":{"get":{"operationId":"listWidgets","x-kubernetes-action":"list","x-kubernetes-group-version-kind":` + gvk + `,
			"responses":{"200":{"description":"OK","content":{"application/json":{"schema":{"$ref":"#/components/schemas/com.example.ext.v1.Widget"}}}}}},
		"parameters":[{"name":"namespace","in":"path","required":true,"schema":{"type":"string"}}]}},
		"components":{"schemas":{"com.example.ext.v1.Widget":{"type":"object","description":"A widget for tests.","x-kubernetes-group-version-kind":[` + gvk + `],
			"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"type":"object"},"spec":{"type":"object","description":"desired state",
			"properties":{"color":{"type":"string","description":"displayed color"}}}}}}}}`,
	"/openapi/v2": `{"swagger":"2.0","info":{"title":"Widgets","version":"v1"},"paths":{"/apis/ext.example.com/v1/namespaces/{namespace}/widgets":{"get":{"operationId":"listWidgets",
		"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/com.example.ext.v1.Widget"}}}}}},
		"definitions":{"com.example.ext.v1.Widget":{"type":"object","description":"A widget for tests.","x-kubernetes-group-version-kind":[` + gvk + `]}}}`,
}

const gvk = `{"group":"ext.example.com","version":"v1","kind":"Widget"}`

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		if s.callers.policy.Load() == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return
	}
	user, err := s.callers.authenticate(r)
	if err != nil {
		writeStatus(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error())
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	spec := authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{
		Path: r.URL.Path,
		Verb: strings.ToLower(r.Method),
	}}
	var at requestPath
	if len(parts) > 3 && parts[0] == "apis" {
		at = parseRequestPath(r, parts[1:])
		spec = authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group:       at.group,
			Version:     at.version,
			Resource:    at.resource,
			Subresource: at.subresource,
			Namespace:   at.namespace,
			Name:        at.name,
			Verb:        at.verb,
		}}
	}
	if err := s.callers.authorize(r.Context(), user, spec); err != nil {
		writeStatus(w, http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
		return
	}
	switch text, ok := discoveryDocuments[r.URL.Path]; {
	case ok:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	case at.group == "metrics.k8s.io":
		s.serveMetrics(w, at)
	case at.resource == "widgets":
		s.serveWidgets(w, r, at, user)
	default:
		http.NotFound(w, r)
	}
}

// requestPath is the parsed path of a request.
type requestPath struct{ group, version, namespace, resource, name, subresource, verb string }

// parseRequestPath parses the parts of a path after "apis", such as "ext.example.com", "v1",
// "namespaces", "default", "widgets", "a".
func parseRequestPath(r *http.Request, parts []string) requestPath {
	index := requestPath{group: parts[0], version: parts[1]}
	parts = parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		index.namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	index.resource, index.name, index.subresource = parts[0], parts[1], parts[2]
	switch {
	case r.Method == http.MethodPost:
		index.verb = "create"
	case r.URL.Query().Get("watch") != "":
		index.verb = "watch"
	case index.name == "":
		index.verb = "list"
	default:
		index.verb = "get"
	}
	return index
}

// serveWidgets handles requests for widgets. The annotation made-by names the creator.
func (s *server) serveWidgets(w http.ResponseWriter, r *http.Request, path requestPath, user *caller) {
	switch {
	case path.subresource == "echo":
		echo(w, r)
	case path.verb == "create":
		object := &unstructured.Unstructured{}
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&object.Object); err != nil || object.GetName() == "" {
			writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "no widget")
			return
		}
		object.SetNamespace(path.namespace)
		object.SetAnnotations(map[string]string{"made-by": user.name})
		if !s.widgets.create(object) {
			writeStatus(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, object.GetName()+" already exists")
			return
		}
		writeJSON(w, http.StatusCreated, object.Object)
	case path.verb == "watch":
		s.widgets.watch(w, r, path.namespace)
	case path.verb == "list":
		items, version := s.widgets.list(path.namespace)
		writeJSON(w, http.StatusOK, map[string]any{
			"apiVersion": "ext.example.com/v1",
			"kind":       "WidgetList",
			"metadata":   map[string]any{"resourceVersion": fmt.Sprint(version)},
			"items":      items,
		})
	default:
		items, _ := s.widgets.list(path.namespace)
		for _, o := range items {
			if o["metadata"].(map[string]any)["name"] == path.name {
				writeJSON(w, http.StatusOK, o)
				return
			}
		}
		writeStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("widgets.ext.example.com %q not found", path.name))
	}
}

// echo upgrades the connection and returns each line that it receives.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "Upgrade request required")
		return
	}
	conn, readWriter, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(readWriter, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = readWriter.Flush()
	for lines := bufio.NewScanner(readWriter); lines.Scan(); {
		if _, err := fmt.Fprintln(conn, lines.Text()); err != nil {
			return
		}
	}
}

// serveMetrics returns constant metrics for any object.
func (s *server) serveMetrics(w http.ResponseWriter, path requestPath) {
	const now = "2026-01-01T00:00:00Z"
	usage := map[string]any{"cpu": "250m", "memory": "64Mi"}
	item := func(kind, name, namespace string) map[string]any {
		meta := map[string]any{"name": name, "creationTimestamp": now}
		response := map[string]any{
			"apiVersion": "metrics.k8s.io/v1beta1",
			"kind":       kind,
			"metadata":   meta,
			"timestamp":  now,
			"window":     "10s",
		}
		if kind == "PodMetrics" {
			meta["namespace"], response["containers"] = namespace, []any{map[string]any{"name": "c", "usage": usage}}
		} else {
			response["usage"] = usage
		}
		return response
	}
	kind, name := "NodeMetrics", "n1"
	if path.resource == "pods" {
		kind, name = "PodMetrics", "p1"
	}
	if path.name != "" {
		writeJSON(w, http.StatusOK, item(kind, path.name, path.namespace))
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"apiVersion": "metrics.k8s.io/v1beta1",
		"kind":       kind + "List",
		"metadata":   map[string]any{},
		"items":      []any{item(kind, name, path.namespace)},
	})
}

// widgets stores widgets. The resource version is their number, because they are never changed or
// deleted.
type widgets struct {
	mu      sync.Mutex
	objects []map[string]any
	changed chan struct{} // closed and replaced by each create
}

func newWidgets() *widgets { return &widgets{changed: make(chan struct{})} }

// create stores a widget and wakes watchers. It returns false if the widget exists.
func (s *widgets) create(object *unstructured.Unstructured) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.objects, func(x map[string]any) bool {
		u := unstructured.Unstructured{Object: x}
		return u.GetName() == object.GetName() && u.GetNamespace() == object.GetNamespace()
	}) {
		return false
	}
	object.SetResourceVersion(fmt.Sprint(len(s.objects) + 1))
	object.SetUID("00000000-0000-4000-8000-000000000000")
	s.objects = append(s.objects, object.Object)
	close(s.changed)
	s.changed = make(chan struct{})
	return true
}

// list returns the widgets in a namespace, or all if it is empty, and the resource version.
func (s *widgets) list(namespace string) ([]map[string]any, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []map[string]any{}
	for _, o := range s.objects {
		if u := (unstructured.Unstructured{Object: o}); namespace == "" || u.GetNamespace() == namespace {
			out = append(out, o)
		}
	}
	return out, len(s.objects)
}

// watch sends the widgets after a resource version until the client disconnects.
func (s *widgets) watch(w http.ResponseWriter, r *http.Request, namespace string) {
	sent := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &sent)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		s.mu.Lock()
		added, changed := s.objects[min(sent, len(s.objects)):], s.changed
		sent = len(s.objects)
		s.mu.Unlock()
		for _, o := range added {
			if u := (unstructured.Unstructured{Object: o}); namespace == "" || u.GetNamespace() == namespace {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": o})
			}
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// writeJSON writes a response.
func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

// writeStatus writes an error.
func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	writeJSON(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reason,
		Message:  message,
	})
}
