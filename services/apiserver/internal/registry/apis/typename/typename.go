// Package typename returns the names of Go types in API documents and schemas. It keeps no state.
// Packages openapi and apply use it.
package typename

import (
	"reflect"
	"slices"
	"strings"
)

// publishedPackages maps prefixes of package paths in this module to the paths of Kubernetes, under
// whose names clients expect the models.
var publishedPackages = []struct{ own, kubernetes string }{
	{
		own:        "binnacle/services/apiserver/internal/registry/apis/apiextensions/",
		kubernetes: "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/",
	},
	{
		own:        "binnacle/services/apiserver/internal/registry/apis/apiregistration/",
		kubernetes: "k8s.io/kube-aggregator/pkg/apis/apiregistration/",
	},
}

// ForType returns the name of a Go type in documents, such as io.k8s.api.core.v1.Pod for
// k8s.io/api/core/v1.Pod.
func ForType(goType reflect.Type) string {
	path := goType.PkgPath()
	for _, p := range publishedPackages {
		if rest, ok := strings.CutPrefix(path, p.own); ok {
			path = p.kubernetes + rest
		}
	}
	return Friendly(path) + "." + goType.Name()
}

// Friendly returns a path with the labels of its host reversed and with dots as separators.
func Friendly(path string) string {
	host, rest, _ := strings.Cut(path, "/")
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	name := strings.Join(labels, ".")
	if rest != "" {
		name += "." + strings.ReplaceAll(rest, "/", ".")
	}
	return name
}
