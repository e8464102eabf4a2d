// Package pods implements the operations on pods other than reads and writes: binding to a node,
// eviction, and requests that are proxied to a kubelet, a pod, a service or a node (logs, exec,
// port forwarding, proxies). Package build lists its operations. Package handlers routes requests
// and calls them. The package keeps no state.
package pods

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
)

// Config holds the dependencies and options of the operations.
type Config struct {
	responsewriters.Responder
	Writer *writes.Writer
	Fields *apply.Fields
	// Upstream reaches kubelets, pods and services.
	Upstream *kubeletproxy.Upstream
	// TranslateCommands serves commands over channels that can be closed. TunnelPortForward serves
	// port forwarding over WebSocket. SplitLogStreams lets clients choose one stream of a log.
	TranslateCommands, TunnelPortForward, SplitLogStreams bool
	// BindingLabels copies the labels of a binding to its pod.
	BindingLabels bool
	Now           func() time.Time
}

// service serves the subresources of pods.
type service struct {
	Config
	// bindings and evictions manage the field ownership of request bodies.
	bindings, evictions *apply.Manager
}

var (
	bindingGVK  = corev1.SchemeGroupVersion.WithKind("Binding")
	evictionGVK = policyv1.SchemeGroupVersion.WithKind("Eviction")
)

// Operations returns the operations of pods, and the proxies to services and nodes.
func Operations(c Config) []handlers.Operation {
	p := &service{
		Config:    c,
		bindings:  c.Fields.ForOperation(bindingGVK, declare.New[corev1.Binding], "binding"),
		evictions: c.Fields.ForOperation(evictionGVK, declare.New[policyv1.Eviction], "eviction"),
	}
	get := []string{http.MethodGet}
	command := []string{http.MethodGet, http.MethodPost}
	any := []string{
		http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut,
		http.MethodPatch, http.MethodDelete,
	}
	pods := schema.GroupResource{Resource: "pods"}
	return []handlers.Operation{
		{Resource: schema.GroupResource{Resource: "bindings"}, Serve: p.serveBinding},
		{Resource: pods, Subresource: "binding", Serve: p.serveBinding},
		{Resource: pods, Subresource: "eviction", Serve: p.serveEviction},
		{Resource: pods, Subresource: "log", Methods: get, Serve: p.serveLog},
		{Resource: pods, Subresource: "exec", Methods: command, Serve: p.serveCommand},
		{Resource: pods, Subresource: "attach", Methods: command, Serve: p.serveCommand},
		{Resource: pods, Subresource: "portforward", Methods: command, Serve: p.servePortForward},
		{Resource: pods, Subresource: "proxy", Methods: any, Serve: p.serveProxy},
		{Resource: schema.GroupResource{Resource: "services"}, Subresource: "proxy", Methods: any, Serve: p.serveProxy},
		{Resource: schema.GroupResource{Resource: "nodes"}, Subresource: "proxy", Methods: any, Serve: p.serveProxy},
	}
}
