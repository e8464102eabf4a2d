// Package typename returns the names of Go types in API documents and schemas. It keeps no state.
// Packages openapi and apply use it.
package typename

import (
	"reflect"
	"strings"
)

// homes maps packages of this module to the packages under whose names clients expect the models.
var homes = []struct{ here, there string }{
	{"binnacle/services/apiserver/internal/registry/apis/apiextensions/", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/"},
	{"binnacle/services/apiserver/internal/registry/apis/apiregistration/", "k8s.io/kube-aggregator/pkg/apis/apiregistration/"},
}

// Of returns the name of a Go type in documents, such as io.k8s.api.core.v1.Pod for
// k8s.io/api/core/v1.Pod.
func Of(t reflect.Type) string {
	path := t.PkgPath()
	for _, h := range homes {
		if rest, ok := strings.CutPrefix(path, h.here); ok {
			path = h.there + rest
		}
	}
	return Friendly(path) + "." + t.Name()
}

// Friendly returns a path with the labels of its host reversed and with dots as separators.
func Friendly(path string) string {
	host, rest, _ := strings.Cut(path, "/")
	labels := strings.Split(host, ".")
	for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
		labels[i], labels[j] = labels[j], labels[i]
	}
	name := strings.Join(labels, ".")
	if rest != "" {
		name += "." + strings.ReplaceAll(rest, "/", ".")
	}
	return name
}
