package openapi

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
)

// homes are where clients expect the models of packages that live elsewhere
// here.
var homes = []struct{ here, there string }{
	{"binnacle/services/apiserver/internal/apis/apiextensions/", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/"},
	{"binnacle/services/apiserver/internal/apis/apiregistration/", "k8s.io/kube-aggregator/pkg/apis/apiregistration/"},
}

// modelName is the name of a Go type in documents, such as
// io.k8s.api.core.v1.Pod for k8s.io/api/core/v1.Pod.
func modelName(t reflect.Type) string {
	path := t.PkgPath()
	for _, h := range homes {
		if rest, ok := strings.CutPrefix(path, h.here); ok {
			path = h.there + rest
		}
	}
	return friendly(path) + "." + t.Name()
}

// customName is the name of a custom resource's model.
func customName(gvk schema.GroupVersionKind) string {
	return friendly(gvk.Group+"/"+gvk.Version) + "." + gvk.Kind
}

// friendly writes a path with the labels of its host reversed, by dots.
func friendly(path string) string {
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

// words are the parts of a group's name: the platform's own domain is left out,
// and the core group, which has no name, is called core.
func words(group string) []string {
	if group == "" {
		return []string{"core"}
	}
	return strings.FieldsFunc(strings.TrimSuffix(group, "."+api.Domain), func(r rune) bool { return r == '.' || r == '-' })
}

// camel joins words as in RbacAuthorization.
func camel(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(title(w))
	}
	return b.String()
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// operationGroup is the part of an operation's id that names the group version.
func operationGroup(gv schema.GroupVersion) string {
	return camel(words(gv.Group)) + title(gv.Version)
}

// tag groups the operations of a group version, as in rbacAuthorization_v1.
func tag(group, version string) string {
	w := words(group)
	name := w[0] + camel(w[1:])
	if version != "" {
		name += "_" + version
	}
	return name
}

// apiPath is the path of a group version without its leading slash.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}
