package main

import (
	"maps"
	"net/http"
	"strings"
)

// conversation is a list of requests to both servers. The steps of a conversation run in their
// order; conversations run concurrently, each in its own namespace.
type conversation struct {
	name      string
	namespace string
	steps     []step
	// shared marks a conversation whose objects affect other conversations. It runs alone.
	shared bool
}

// step is a request. Its texts may have the variables {ns} and those that earlier steps save; both
// servers have their own values.
type step struct {
	// label describes the step.
	label        string
	method, path string
	header       map[string]string
	// object is the body, in the encoding; nil sends text.
	object   any
	encoding encoding
	text     string
	// save names variables and their paths in the response.
	save map[string]string
	// setup marks a request that the later ones need.
	setup bool
	// until repeats the request until the server returns the status; 0 sends it once.
	until int
	// settles repeats the request until the servers agree, because their controllers change what it
	// reads.
	settles bool
}

// changes reports whether a step may change an object.
func (s step) changes() bool {
	return s.method != http.MethodGet && s.method != http.MethodHead && !strings.Contains(s.path, "dryRun=All")
}

// with returns a step with another header.
func (s step) with(name, value string) step {
	s.header = maps.Clone(s.header)
	if s.header == nil {
		s.header = map[string]string{}
	}
	s.header[name] = value
	return s
}

// query returns a step with further query parameters.
func (s step) query(parameters string) step {
	if parameters == "" {
		return s
	}
	separator := "?"
	if strings.Contains(s.path, "?") {
		separator = "&"
	}
	s.path += separator + parameters
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
