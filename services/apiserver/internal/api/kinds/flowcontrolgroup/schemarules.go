package flowcontrolgroup

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry/validate"
)

// exemptPrecedence is reserved for the schema of exempt requests.
const exemptPrecedence = 1

func flowSchemaRules(at validate.At, f *flowcontrolv1.FlowSchema) {
	spec := at.Child("spec")
	precedenceRules(spec, f.Name, f.Spec.MatchingPrecedence)
	if m := f.Spec.DistinguisherMethod; m != nil && m.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType && m.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
		spec.Add(field.NotSupported(spec.Child("distinguisherMethod", "type").Path(), validate.Internal(m),
			[]string{string(flowcontrolv1.FlowDistinguisherMethodByNamespaceType), string(flowcontrolv1.FlowDistinguisherMethodByUserType)}))
	}
	level := spec.Child("priorityLevelConfiguration")
	if name := f.Spec.PriorityLevelConfiguration.Name; name == "" {
		level.Required("name", "must reference a priority level")
	} else {
		level.Text("name", name, validate.DNSSubdomain)
	}
	validate.Each(spec, "rules", f.Spec.Rules, schemaRule)
	if fixed := mandatorySchema(f.Name); fixed != nil && !validate.Same(&f.Spec, fixed) {
		at.Invalid("spec", f.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name))
	}
	flowSchemaStatusRules(at, f)
}

func flowSchemaStatusRules(at validate.At, f *flowcontrolv1.FlowSchema) {
	conditionRules(at.Child("status"), f.Status.Conditions, func(c *flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) })
}

// conditionRules requires a distinct type of each condition.
func conditionRules[C any](status validate.At, conditions []C, typeOf func(*C) string) {
	seen := validate.Set[string]{}
	validate.Each(status, "conditions", conditions, func(at validate.At, c *C) {
		validate.Unique(at, "type", typeOf(c), seen)
		at.Needs("type", typeOf(c) != "", "must not be empty")
	})
}

func precedenceRules(spec validate.At, name string, precedence int32) {
	const most = flowcontrolv1.FlowSchemaMaxMatchingPrecedence
	switch {
	case precedence <= 0:
		spec.Invalid("matchingPrecedence", precedence, "must be a positive value")
	case precedence > most:
		spec.Invalid("matchingPrecedence", precedence, fmt.Sprintf("must not be greater than %d", most))
	case precedence == exemptPrecedence && name != flowcontrolv1.FlowSchemaNameExempt:
		spec.Invalid("matchingPrecedence", precedence, "only the schema named 'exempt' may have matchingPrecedence 1")
	}
}

func schemaRule(at validate.At, r *flowcontrolv1.PolicyRulesWithSubjects) {
	at.Needs("subjects", len(r.Subjects) > 0, "subjects must contain at least one value")
	validate.Each(at, "subjects", r.Subjects, subjectRules)
	at.Needs("", len(r.ResourceRules) > 0 || len(r.NonResourceRules) > 0, "at least one of resourceRules and nonResourceRules has to be non-empty")
	validate.Each(at, "resourceRules", r.ResourceRules, resourceRule)
	validate.Each(at, "nonResourceRules", r.NonResourceRules, nonResourceRule)
}

func subjectRules(at validate.At, s *flowcontrolv1.Subject) {
	members := []struct {
		kind  flowcontrolv1.SubjectKind
		name  string
		set   bool
		rules func()
	}{
		{kind: flowcontrolv1.SubjectKindUser, name: "user", set: s.User != nil, rules: func() { at.Child("user").Present("name", s.User.Name != "") }},
		{kind: flowcontrolv1.SubjectKindGroup, name: "group", set: s.Group != nil, rules: func() { at.Child("group").Present("name", s.Group.Name != "") }},
		{kind: flowcontrolv1.SubjectKindServiceAccount, name: "serviceAccount", set: s.ServiceAccount != nil, rules: func() {
			serviceAccountRules(at.Child("serviceAccount"), s.ServiceAccount)
		}},
	}
	known := false
	for _, m := range members {
		if m.kind != s.Kind {
			continue
		}
		known = true
		if m.set {
			m.rules()
		} else {
			at.Required(m.name, fmt.Sprintf("%s is required when subject kind is '%s'", m.name, m.kind))
		}
	}
	if !known {
		validate.OneOf(at, "kind", s.Kind, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
		return
	}
	for _, m := range members {
		at.Absent(m.name, m.set && m.kind != s.Kind, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", m.name, m.kind))
	}
}

func serviceAccountRules(at validate.At, s *flowcontrolv1.ServiceAccountSubject) {
	if s.Name != flowcontrolv1.NameAll {
		at.RequiredText("name", s.Name, validate.DNSSubdomain)
	}
	if s.Namespace == "" {
		at.Required("namespace", "must specify namespace for service account")
	} else {
		at.Text("namespace", s.Namespace, validate.DNSLabel)
	}
}

func resourceRule(at validate.At, r *flowcontrolv1.ResourcePolicyRule) {
	verbRules(at, r.Verbs)
	everyOrSome(at, "apiGroups", r.APIGroups, "resource rules must supply at least one api group", "api groups")
	everyOrSome(at, "resources", r.Resources, "resource rules must supply at least one resource", "resources")
	if len(r.Namespaces) == 0 && r.ClusterScope {
		return
	}
	if everyOrSome(at, "namespaces", r.Namespaces, "resource rules that are not cluster scoped must supply at least one namespace", "namespaces") {
		return
	}
	for i, ns := range r.Namespaces {
		for _, message := range validation.IsDNS1123Label(ns) {
			at.Index("namespaces", i).Invalid("", ns, "each member of this list must be '*' or a DNS-1123 label; "+message)
		}
	}
}

func nonResourceRule(at validate.At, r *flowcontrolv1.NonResourcePolicyRule) {
	verbRules(at, r.Verbs)
	if everyOrSome(at, "nonResourceURLs", r.NonResourceURLs, "nonResourceURLs must contain at least one value", "non-resource URLs") {
		return
	}
	for i, url := range r.NonResourceURLs {
		if wrong := wrongPath(url); wrong != "" {
			at.Index("nonResourceURLs", i).Invalid("", url, wrong)
		}
	}
}

func verbRules(at validate.At, verbs []string) {
	known := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	if everyOrSome(at, "verbs", verbs, "verbs must contain at least one value", "verbs") {
		return
	}
	if slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(known, v) }) {
		at.Add(field.NotSupported(at.Child("verbs").Path(), verbs, known))
	}
}

// everyOrSome requires values, or only the wildcard. It reports whether the wildcard or no value is
// present.
func everyOrSome(at validate.At, name string, values []string, required, others string) bool {
	every := slices.Contains(values, flowcontrolv1.ResourceAll)
	at.Needs(name, len(values) > 0, required)
	if every && len(values) > 1 {
		at.Invalid(name, values, fmt.Sprintf("if '*' is present, must not specify other %s", others))
	}
	return every || len(values) == 0
}

// wrongPath returns the error of a non-resource path, or "".
func wrongPath(path string) string {
	stars := strings.Count(path, "*")
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case path[0] != '/':
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case stars > 1 || stars == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}
