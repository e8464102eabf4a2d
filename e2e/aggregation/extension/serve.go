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

// documents are the discovery and OpenAPI documents by path.
var documents = map[string]string{
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
	u, err := s.callers.identify(r)
	if err != nil {
		fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error())
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	what := authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}}
	var at requestPath
	if len(parts) > 3 && parts[0] == "apis" {
		at = placeOf(r, parts[1:])
		what = authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: at.group, Version: at.version, Resource: at.resource, Subresource: at.sub, Namespace: at.namespace, Name: at.name, Verb: at.verb,
		}}
	}
	if err := s.callers.may(r.Context(), u, what); err != nil {
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
		return
	}
	switch text, ok := documents[r.URL.Path]; {
	case ok:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	case at.group == "metrics.k8s.io":
		s.metrics(w, at)
	case at.resource == "widgets":
		s.serveWidgets(w, r, at, u)
	default:
		http.NotFound(w, r)
	}
}

// requestPath is the parsed path of a request.
type requestPath struct{ group, version, namespace, resource, name, sub, verb string }

func placeOf(r *http.Request, parts []string) requestPath {
	at := requestPath{group: parts[0], version: parts[1]}
	parts = parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		at.namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	at.resource, at.name, at.sub = parts[0], parts[1], parts[2]
	switch {
	case r.Method == http.MethodPost:
		at.verb = "create"
	case r.URL.Query().Get("watch") != "":
		at.verb = "watch"
	case at.name == "":
		at.verb = "list"
	default:
		at.verb = "get"
	}
	return at
}

func (s *server) serveWidgets(w http.ResponseWriter, r *http.Request, at requestPath, u *caller) {
	switch {
	case at.sub == "echo":
		echo(w, r)
	case at.verb == "create":
		o := &unstructured.Unstructured{}
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&o.Object); err != nil || o.GetName() == "" {
			fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "no widget")
			return
		}
		o.SetNamespace(at.namespace)
		o.SetAnnotations(map[string]string{"made-by": u.name})
		if !s.widgets.add(o) {
			fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, o.GetName()+" already exists")
			return
		}
		write(w, http.StatusCreated, o.Object)
	case at.verb == "watch":
		s.widgets.watch(w, r, at.namespace)
	case at.verb == "list":
		items, version := s.widgets.list(at.namespace)
		write(w, http.StatusOK, map[string]any{"apiVersion": "ext.example.com/v1", "kind": "WidgetList", "metadata": map[string]any{"resourceVersion": fmt.Sprint(version)}, "items": items})
	default:
		items, _ := s.widgets.list(at.namespace)
		for _, o := range items {
			if o["metadata"].(map[string]any)["name"] == at.name {
				write(w, http.StatusOK, o)
				return
			}
		}
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("widgets.ext.example.com %q not found", at.name))
	}
}

// echo upgrades the connection and returns each line that it receives.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "Upgrade request required")
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = rw.Flush()
	for lines := bufio.NewScanner(rw); lines.Scan(); {
		if _, err := fmt.Fprintln(conn, lines.Text()); err != nil {
			return
		}
	}
}

// metrics returns constant metrics for any object.
func (s *server) metrics(w http.ResponseWriter, at requestPath) {
	const now = "2026-01-01T00:00:00Z"
	usage := map[string]any{"cpu": "250m", "memory": "64Mi"}
	item := func(kind, name, namespace string) map[string]any {
		meta := map[string]any{"name": name, "creationTimestamp": now}
		o := map[string]any{"apiVersion": "metrics.k8s.io/v1beta1", "kind": kind, "metadata": meta, "timestamp": now, "window": "10s"}
		if kind == "PodMetrics" {
			meta["namespace"], o["containers"] = namespace, []any{map[string]any{"name": "c", "usage": usage}}
		} else {
			o["usage"] = usage
		}
		return o
	}
	kind, name := "NodeMetrics", "n1"
	if at.resource == "pods" {
		kind, name = "PodMetrics", "p1"
	}
	if at.name != "" {
		write(w, http.StatusOK, item(kind, at.name, at.namespace))
		return
	}
	write(w, http.StatusOK, map[string]any{"apiVersion": "metrics.k8s.io/v1beta1", "kind": kind + "List", "metadata": map[string]any{}, "items": []any{item(kind, name, at.namespace)}})
}

// widgets is the storage of widgets.
type widgets struct {
	mu      sync.Mutex
	all     []map[string]any
	changed chan struct{}
}

func newWidgets() *widgets { return &widgets{changed: make(chan struct{})} }

func (s *widgets) add(o *unstructured.Unstructured) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.all, func(x map[string]any) bool {
		u := unstructured.Unstructured{Object: x}
		return u.GetName() == o.GetName() && u.GetNamespace() == o.GetNamespace()
	}) {
		return false
	}
	o.SetResourceVersion(fmt.Sprint(len(s.all) + 1))
	o.SetUID("00000000-0000-4000-8000-000000000000")
	s.all = append(s.all, o.Object)
	close(s.changed)
	s.changed = make(chan struct{})
	return true
}

func (s *widgets) list(namespace string) ([]map[string]any, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []map[string]any{}
	for _, o := range s.all {
		if u := (unstructured.Unstructured{Object: o}); namespace == "" || u.GetNamespace() == namespace {
			out = append(out, o)
		}
	}
	return out, len(s.all)
}

// watch sends the widgets after a resource version until the client disconnects.
func (s *widgets) watch(w http.ResponseWriter, r *http.Request, namespace string) {
	at := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &at)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		s.mu.Lock()
		news, changed := s.all[min(at, len(s.all)):], s.changed
		at = len(s.all)
		s.mu.Unlock()
		for _, o := range news {
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

func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	write(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}
