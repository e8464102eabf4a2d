package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	content "k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/registry/validate"
)

const manySources = "may not have more than one field specified at a time"

func (c *check) envName() validate.Format {
	if c.anyEnvName || c.kept.envName {
		return content.IsRelaxedEnvVarName
	}
	return content.IsEnvVarName
}

func hasRelaxedEnvName(ctr *corev1.Container) bool {
	return slices.ContainsFunc(ctr.Env, func(e corev1.EnvVar) bool { return len(content.IsEnvVarName(e.Name)) > 0 }) ||
		slices.ContainsFunc(ctr.EnvFrom, func(e corev1.EnvFromSource) bool {
			return e.Prefix != "" && len(content.IsEnvVarName(e.Prefix)) > 0
		})
}

func (c *check) envRules(at validate.At, ctr *corev1.Container) {
	validate.Each(at, "env", ctr.Env, func(at validate.At, e *corev1.EnvVar) {
		at.RequiredText("name", e.Name, c.envName())
		if e.ValueFrom != nil {
			valueFromRules(at, e)
		}
	})
	validate.Each(at, "envFrom", ctr.EnvFrom, func(place validate.At, e *corev1.EnvFromSource) {
		place.OptionalText("prefix", e.Prefix, c.envName())
		u := place.Choice("")
		validate.Member(u, "configMapRef", e.ConfigMapRef, func(at validate.At, s *corev1.ConfigMapEnvSource) {
			at.RequiredText("name", s.Name, validate.NamePrefix)
		})
		validate.Member(u, "secretRef", e.SecretRef, func(at validate.At, s *corev1.SecretEnvSource) {
			at.RequiredText("name", s.Name, validate.NamePrefix)
		})
		// Both errors are about the list as a whole.
		switch {
		case u.Count() == 0:
			at.Invalid("envFrom", "", "must specify one of: `configMapRef` or `secretRef`")
		case u.Count() > 1:
			at.Invalid("envFrom", "", manySources)
		}
	})
}

func valueFromRules(at validate.At, e *corev1.EnvVar) {
	from := e.ValueFrom
	u := at.Child("valueFrom").Choice("")
	validate.Member(u, "fieldRef", from.FieldRef, func(at validate.At, r *corev1.ObjectFieldSelector) {
		fieldRefRules(at, r, envFields())
	})
	validate.Member(u, "resourceFieldRef", from.ResourceFieldRef, func(at validate.At, r *corev1.ResourceFieldSelector) {
		resourceFieldRules(at, r, false)
	})
	validate.Member(u, "configMapKeyRef", from.ConfigMapKeyRef, func(at validate.At, r *corev1.ConfigMapKeySelector) {
		at.Text("name", r.Name, validate.DNSSubdomain)
		at.RequiredText("key", r.Key, validate.DataKey)
	})
	validate.Member(u, "secretKeyRef", from.SecretKeyRef, func(at validate.At, r *corev1.SecretKeySelector) {
		at.Text("name", r.Name, validate.DNSSubdomain)
		at.RequiredText("key", r.Key, validate.DataKey)
	})
	switch {
	case u.Count() == 0:
		at.Invalid("valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")
	case e.Value != "":
		at.Invalid("valueFrom", "", "may not be specified when `value` is not empty")
	case u.Count() > 1:
		at.Invalid("valueFrom", "", manySources)
	}
}

// envFields returns the fields of a pod that a variable can refer to, volumeFields those that a
// file can contain, in the order of messages.
func envFields() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

func volumeFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// downwardFields returns all fields that any reference can name.
func downwardFields() []string {
	return append(envFields(), "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase")
}

// fieldRefRules requires one of the given fields, or a label or an annotation.
func fieldRefRules(at validate.At, r *corev1.ObjectFieldSelector, fields []string) {
	if r.APIVersion == "" {
		at.Required("apiVersion", "")
		return
	}
	if r.FieldPath == "" {
		at.Required("fieldPath", "")
		return
	}
	unknown := func(why, what string) {
		at.Invalid("fieldPath", r.FieldPath, "error converting fieldPath: "+why+": "+what)
	}
	path, key, keyed := subscript(r.FieldPath)
	if path == "spec.host" && !keyed {
		path = "spec.nodeName"
	}
	switch {
	case r.APIVersion != "v1":
		unknown("unsupported pod version", r.APIVersion)
	case keyed && path == "metadata.annotations":
		at.Text("", strings.ToLower(key), validate.QualifiedName)
	case keyed && path == "metadata.labels":
		at.Text("", key, validate.QualifiedName)
	case keyed:
		unknown("field label does not support subscript", r.FieldPath)
	case !slices.Contains(downwardFields(), path):
		unknown("field label not supported", path)
	default:
		validate.OneOf(at, "fieldPath", path, fields...)
	}
}

// subscript splits metadata.labels['key'].
func subscript(path string) (base, key string, ok bool) {
	if inner, closed := strings.CutSuffix(path, "']"); closed {
		if base, key, ok = strings.Cut(inner, "['"); ok && base != "" {
			return base, key, true
		}
	}
	return path, "", false
}

const (
	hugeRequests = "requests.hugepages-"
	hugeLimits   = "limits.hugepages-"
)

// resourceFieldRules requires a resource of a container. A file must name the container.
func resourceFieldRules(at validate.At, r *corev1.ResourceFieldSelector, file bool) {
	huge := strings.HasPrefix(r.Resource, hugeRequests) || strings.HasPrefix(r.Resource, hugeLimits)
	switch {
	case file && r.ContainerName == "":
		at.Required("containerName", "")
	case r.Resource == "":
		at.Required("resource", "")
	case !huge:
		validate.OneOf(at, "resource", r.Resource,
			"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	divisorRules(at, r.Resource, r.Divisor, huge)
}

func divisorRules(at validate.At, name string, divisor resource.Quantity, huge bool) {
	if divisor.IsZero() {
		return
	}
	allowed := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	shown, what := strings.Join(allowed, ", "), ""
	switch _, of, _ := strings.Cut(name, "."); {
	case huge:
		what = "hugepages"
	case of == "cpu":
		allowed, shown, what = []string{"1m", "1"}, "1m and 1", "cpu"
	case of == "memory":
		what = "memory"
	case of == "ephemeral-storage":
		what = "local ephemeral storage"
	default:
		return
	}
	if !slices.Contains(allowed, divisor.String()) {
		at.Invalid("divisor", name, fmt.Sprintf("only divisor's values %s are supported with the %s resource", shown, what))
	}
}
