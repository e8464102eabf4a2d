// Package typename names Go types as documents and schemas of the API do. It
// keeps no state; packages openapi and apply call it.
package typename

import (
	"reflect"
	"strings"
)

// homes are where clients expect the models of packages that live elsewhere
// here.
var homes = []struct{ here, there string }{
	{"binnacle/services/apiserver/internal/apis/apiextensions/", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/"},
	{"binnacle/services/apiserver/internal/apis/apiregistration/", "k8s.io/kube-aggregator/pkg/apis/apiregistration/"},
}

// Of is the name of a Go type in documents, such as io.k8s.api.core.v1.Pod for
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

// Friendly writes a path with the labels of its host reversed, by dots.
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
