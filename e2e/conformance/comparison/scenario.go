package comparison

import (
	"maps"
	"net/http"
	"strings"
	"time"
)

// Scenario is a list of requests to both servers. The steps of a scenario run in their
// order; scenarios run concurrently, each in its own namespace.
type Scenario struct {
	Name      string
	Namespace string
	Steps     []Step
	// Shared marks a scenario whose objects affect other scenarios. It runs alone.
	Shared bool
	// Reviewed compares the reviews that admission webhooks receive for requests in the namespace.
	Reviewed bool
	// Needs is a command that prepares a server for the requests. Reproductions start with it.
	Needs string
}

// Step is a request. Its texts may contain {ns} and the variables that earlier steps saved. Each
// server has its own values.
type Step struct {
	// Label describes the step.
	Label        string
	Method, Path string
	Header       map[string]string
	// Object is the body, in the encoding; nil sends text.
	Object   any
	Encoding Encoding
	Text     string
	// Save names variables and their paths in the response.
	Save map[string]string
	// Setup marks a request that the later ones need.
	Setup bool
	// Until repeats the request until it accepts the response, for a limited time; nil accepts all.
	Until func(status int, body any) bool
	// RetryFor limits the repetition; 0 means three minutes.
	RetryFor time.Duration
	// RetryUntilEqual repeats the request until the servers agree. It is for reads of objects that
	// controllers change.
	RetryUntilEqual bool
}

// Succeeds is a condition of Until.
func Succeeds(status int, _ any) bool { return status < http.StatusMultipleChoices }

// changes reports whether a step may change an object.
func (s Step) changes() bool {
	return s.Method != http.MethodGet && s.Method != http.MethodHead && !strings.Contains(s.Path, "dryRun=All")
}

// readsCache reports whether a step may read an older state that a server still has in its cache.
func (s Step) readsCache() bool {
	return s.Method == http.MethodGet && strings.Contains(s.Path, "resourceVersion=") && !strings.Contains(s.Path, "watch")
}

// With returns a step with another header.
func (s Step) With(name, value string) Step {
	s.Header = maps.Clone(s.Header)
	if s.Header == nil {
		s.Header = map[string]string{}
	}
	s.Header[name] = value
	return s
}

// Query returns a step with further query parameters.
func (s Step) Query(parameters string) Step {
	if parameters == "" {
		return s
	}
	separator := "?"
	if strings.Contains(s.Path, "?") {
		separator = "&"
	}
	s.Path += separator + parameters
	return s
}

func expand(text string, vars map[string]string) string {
	for k, v := range vars {
		text = strings.ReplaceAll(text, "{"+k+"}", v)
	}
	return text
}

// expandTree returns a copy of a JSON value with its variables replaced.
func expandTree(v any, vars map[string]string) any {
	switch t := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, x := range t {
			out[expand(k, vars)] = expandTree(x, vars)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, x := range t {
			out[i] = expandTree(x, vars)
		}
		return out
	case string:
		return expand(t, vars)
	}
	return v
}

// NamespaceSteps create the namespace of a scenario with its service account.
func NamespaceSteps() []Step {
	return []Step{
		{Label: "namespace", Method: http.MethodPost, Path: "/api/v1/namespaces", Encoding: JSONBody, Setup: true,
			Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "{ns}"}}},
		{Label: "service account", Method: http.MethodPost, Path: "/api/v1/namespaces/{ns}/serviceaccounts", Encoding: JSONBody, Setup: true,
			Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"}}},
	}
}
