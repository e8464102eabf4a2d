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
	// TranslateCommands serves exec and attach over a WebSocket protocol whose streams can be closed.
	TranslateCommands bool
	// TunnelPortForward serves port forwarding over WebSocket.
	TunnelPortForward bool
	// SplitLogStreams lets clients choose one stream of a log.
	SplitLogStreams bool
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
func Operations(config Config) []handlers.Operation {
	s := &service{
		Config:    config,
		bindings:  config.Fields.ForOperation(bindingGVK, declare.New[corev1.Binding], "binding"),
		evictions: config.Fields.ForOperation(evictionGVK, declare.New[policyv1.Eviction], "eviction"),
	}
	get := []string{http.MethodGet}
	command := []string{http.MethodGet, http.MethodPost}
	anyMethod := []string{
		http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut,
		http.MethodPatch, http.MethodDelete,
	}
	pods := schema.GroupResource{Resource: "pods"}
	return []handlers.Operation{
		{Resource: schema.GroupResource{Resource: "bindings"}, Serve: s.serveBinding},
		{Resource: pods, Subresource: "binding", Serve: s.serveBinding},
		{Resource: pods, Subresource: "eviction", Serve: s.serveEviction},
		{Resource: pods, Subresource: "log", Methods: get, Serve: s.serveLog},
		{Resource: pods, Subresource: "exec", Methods: command, Serve: s.serveCommand},
		{Resource: pods, Subresource: "attach", Methods: command, Serve: s.serveCommand},
		{Resource: pods, Subresource: "portforward", Methods: command, Serve: s.servePortForward},
		{Resource: pods, Subresource: "proxy", Methods: anyMethod, Serve: s.serveProxy},
		{Resource: schema.GroupResource{Resource: "services"}, Subresource: "proxy", Methods: anyMethod, Serve: s.serveProxy},
		{Resource: schema.GroupResource{Resource: "nodes"}, Subresource: "proxy", Methods: anyMethod, Serve: s.serveProxy},
	}
}
