package openapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry/apis/typename"
)

// customName returns the name of a custom resource's model: com.example.v1.Widget.
func customName(gvk schema.GroupVersionKind) string {
	return typename.Friendly(gvk.Group+"/"+gvk.Version) + "." + gvk.Kind
}

// nameParts returns the words of a group's name without the domain k8s.io. The core group, which
// has no name, is called core.
func nameParts(group string) []string {
	if group == "" {
		return []string{"core"}
	}
	return strings.FieldsFunc(strings.TrimSuffix(group, "."+api.Domain), func(r rune) bool { return r == '.' || r == '-' })
}

// camelCase joins words, such as rbac and authorization, to RbacAuthorization.
func camelCase(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(title(w))
	}
	return b.String()
}

// title returns s with an upper-case first letter.
func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// operationID returns the id of an operation, such as listCoreV1PodForAllNamespaces for the verb
// list and the subject PodForAllNamespaces. It removes hyphens in the subject.
func operationID(verb string, gv schema.GroupVersion, subject string) string {
	return verb + camelCase(nameParts(gv.Group)) + title(gv.Version) + camelCase(strings.Split(subject, "-"))
}

// tag returns the tag of a group version's operations, such as rbacAuthorization_v1.
func tag(group, version string) string {
	words := nameParts(group)
	name := words[0] + camelCase(words[1:])
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
