package openapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry/apis/typename"
)

// customName returns the name of a custom resource's model.
func customName(gvk schema.GroupVersionKind) string {
	return typename.Friendly(gvk.Group+"/"+gvk.Version) + "." + gvk.Kind
}

// words returns the parts of a group's name without the platform's own domain. The core group,
// which has no name, is called core.
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

// operationGroup returns the part of an operation's id that names the group version.
func operationGroup(gv schema.GroupVersion) string {
	return camel(words(gv.Group)) + title(gv.Version)
}

// tag returns the tag of a group version's operations, as in rbacAuthorization_v1.
func tag(group, version string) string {
	w := words(group)
	name := w[0] + camel(w[1:])
	if version != "" {
		name += "_" + version
	}
	return name
}

// apiPath returns the path of a group version without its leading slash.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}
