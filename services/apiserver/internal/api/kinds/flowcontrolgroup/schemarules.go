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

func flowSchemaRules(fldPath validate.Path, f *flowcontrolv1.FlowSchema) {
	spec := fldPath.Child("spec")
	precedenceRules(spec, f.Name, f.Spec.MatchingPrecedence)
	if m := f.Spec.DistinguisherMethod; m != nil && m.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType && m.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
		spec.Add(field.NotSupported(spec.Child("distinguisherMethod", "type").FieldPath(), validate.InternalValue(m),
			[]string{string(flowcontrolv1.FlowDistinguisherMethodByNamespaceType), string(flowcontrolv1.FlowDistinguisherMethodByUserType)}))
	}
	level := spec.Child("priorityLevelConfiguration")
	if name := f.Spec.PriorityLevelConfiguration.Name; name == "" {
		level.Required("name", "must reference a priority level")
	} else {
		level.Text("name", name, validate.DNSSubdomain)
	}
	validate.Each(spec, "rules", f.Spec.Rules, schemaRule)
	if fixed := mandatorySchema(f.Name); fixed != nil && !validate.SemanticEqual(&f.Spec, fixed) {
		fldPath.Invalid("spec", f.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name))
	}
	flowSchemaStatusRules(fldPath, f)
}

func flowSchemaStatusRules(fldPath validate.Path, f *flowcontrolv1.FlowSchema) {
	conditionRules(fldPath.Child("status"), f.Status.Conditions, func(c *flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) })
}

// conditionRules requires a distinct type of each condition.
func conditionRules[C any](status validate.Path, conditions []C, typeOf func(*C) string) {
	seen := validate.Set[string]{}
	validate.Each(status, "conditions", conditions, func(fldPath validate.Path, c *C) {
		validate.Unique(fldPath, "type", typeOf(c), seen)
		fldPath.PresentWithDetail("type", typeOf(c) != "", "must not be empty")
	})
}

func precedenceRules(spec validate.Path, name string, precedence int32) {
	const maximum = flowcontrolv1.FlowSchemaMaxMatchingPrecedence
	switch {
	case precedence <= 0:
		spec.Invalid("matchingPrecedence", precedence, "must be a positive value")
	case precedence > maximum:
		spec.Invalid("matchingPrecedence", precedence, fmt.Sprintf("must not be greater than %d", maximum))
	case precedence == exemptPrecedence && name != flowcontrolv1.FlowSchemaNameExempt:
		spec.Invalid("matchingPrecedence", precedence, "only the schema named 'exempt' may have matchingPrecedence 1")
	}
}

func schemaRule(fldPath validate.Path, r *flowcontrolv1.PolicyRulesWithSubjects) {
	fldPath.PresentWithDetail("subjects", len(r.Subjects) > 0, "subjects must contain at least one value")
	validate.Each(fldPath, "subjects", r.Subjects, subjectRules)
	fldPath.PresentWithDetail("", len(r.ResourceRules) > 0 || len(r.NonResourceRules) > 0, "at least one of resourceRules and nonResourceRules has to be non-empty")
	validate.Each(fldPath, "resourceRules", r.ResourceRules, resourceRule)
	validate.Each(fldPath, "nonResourceRules", r.NonResourceRules, nonResourceRule)
}

func subjectRules(fldPath validate.Path, s *flowcontrolv1.Subject) {
	members := []struct {
		kind  flowcontrolv1.SubjectKind
		name  string
		set   bool
		rules func()
	}{
		{kind: flowcontrolv1.SubjectKindUser, name: "user", set: s.User != nil, rules: func() { fldPath.Child("user").Present("name", s.User.Name != "") }},
		{kind: flowcontrolv1.SubjectKindGroup, name: "group", set: s.Group != nil, rules: func() { fldPath.Child("group").Present("name", s.Group.Name != "") }},
		{kind: flowcontrolv1.SubjectKindServiceAccount, name: "serviceAccount", set: s.ServiceAccount != nil, rules: func() {
			serviceAccountRules(fldPath.Child("serviceAccount"), s.ServiceAccount)
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
			fldPath.Required(m.name, fmt.Sprintf("%s is required when subject kind is '%s'", m.name, m.kind))
		}
	}
	if !known {
		validate.OneOf(fldPath, "kind", s.Kind, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
		return
	}
	for _, m := range members {
		fldPath.Absent(m.name, m.set && m.kind != s.Kind, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", m.name, m.kind))
	}
}

func serviceAccountRules(fldPath validate.Path, s *flowcontrolv1.ServiceAccountSubject) {
	if s.Name != flowcontrolv1.NameAll {
		fldPath.RequiredText("name", s.Name, validate.DNSSubdomain)
	}
	if s.Namespace == "" {
		fldPath.Required("namespace", "must specify namespace for service account")
	} else {
		fldPath.Text("namespace", s.Namespace, validate.DNSLabel)
	}
}

func resourceRule(fldPath validate.Path, r *flowcontrolv1.ResourcePolicyRule) {
	verbRules(fldPath, r.Verbs)
	everyOrSome(fldPath, "apiGroups", r.APIGroups, "resource rules must supply at least one api group", "api groups")
	everyOrSome(fldPath, "resources", r.Resources, "resource rules must supply at least one resource", "resources")
	if len(r.Namespaces) == 0 && r.ClusterScope {
		return
	}
	if everyOrSome(fldPath, "namespaces", r.Namespaces, "resource rules that are not cluster scoped must supply at least one namespace", "namespaces") {
		return
	}
	for i, ns := range r.Namespaces {
		for _, message := range validation.IsDNS1123Label(ns) {
			fldPath.Index("namespaces", i).Invalid("", ns, "each member of this list must be '*' or a DNS-1123 label; "+message)
		}
	}
}

func nonResourceRule(fldPath validate.Path, r *flowcontrolv1.NonResourcePolicyRule) {
	verbRules(fldPath, r.Verbs)
	if everyOrSome(fldPath, "nonResourceURLs", r.NonResourceURLs, "nonResourceURLs must contain at least one value", "non-resource URLs") {
		return
	}
	for i, url := range r.NonResourceURLs {
		if wrong := wrongPath(url); wrong != "" {
			fldPath.Index("nonResourceURLs", i).Invalid("", url, wrong)
		}
	}
}

func verbRules(fldPath validate.Path, verbs []string) {
	known := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	if everyOrSome(fldPath, "verbs", verbs, "verbs must contain at least one value", "verbs") {
		return
	}
	if slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(known, v) }) {
		fldPath.Add(field.NotSupported(fldPath.Child("verbs").FieldPath(), verbs, known))
	}
}

// everyOrSome requires values, or only the wildcard. It reports whether the wildcard or no value is
// present.
func everyOrSome(fldPath validate.Path, name string, values []string, required, others string) bool {
	every := slices.Contains(values, flowcontrolv1.ResourceAll)
	fldPath.PresentWithDetail(name, len(values) > 0, required)
	if every && len(values) > 1 {
		fldPath.Invalid(name, values, fmt.Sprintf("if '*' is present, must not specify other %s", others))
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
