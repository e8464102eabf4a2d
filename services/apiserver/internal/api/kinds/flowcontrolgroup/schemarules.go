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

// exemptPrecedence is the matching precedence that is reserved for the flow schema exempt.
const exemptPrecedence = 1

// validateFlowSchema validates a new or changed flow schema.
func validateFlowSchema(fld validate.Field, flowSchema *flowcontrolv1.FlowSchema) {
	spec := fld.Child("spec")
	validatePrecedence(spec, flowSchema.Name, flowSchema.Spec.MatchingPrecedence)
	m := flowSchema.Spec.DistinguisherMethod
	if m != nil && m.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType &&
		m.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
		spec.Add(field.NotSupported(
			spec.Child("distinguisherMethod", "type").FieldPath(),
			validate.InternalValue(m),
			[]string{
				string(flowcontrolv1.FlowDistinguisherMethodByNamespaceType),
				string(flowcontrolv1.FlowDistinguisherMethodByUserType),
			},
		))
	}
	level := spec.Child("priorityLevelConfiguration")
	if name := flowSchema.Spec.PriorityLevelConfiguration.Name; name == "" {
		level.Required("name", "must reference a priority level")
	} else {
		level.CheckText("name", name, validate.DNSSubdomain)
	}
	validate.Each(spec, "rules", flowSchema.Spec.Rules, validateSchemaRule)
	if fixed := mandatorySchema(flowSchema.Name); fixed != nil && !validate.SemanticEqual(&flowSchema.Spec, fixed) {
		fld.Invalid("spec", flowSchema.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", flowSchema.Name))
	}
	validateFlowSchemaStatus(fld, flowSchema)
}

func validateFlowSchemaStatus(fld validate.Field, f *flowcontrolv1.FlowSchema) {
	validateConditions(
		fld.Child("status"),
		f.Status.Conditions,
		func(c *flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) },
	)
}

func validateConditions[C any](status validate.Field, conditions []C, typeOf func(*C) string) {
	seen := validate.Set[string]{}
	validate.Each(status, "conditions", conditions, func(fld validate.Field, c *C) {
		validate.Unique(fld, "type", typeOf(c), seen)
		fld.RequireSetWithDetail("type", typeOf(c) != "", "must not be empty")
	})
}

func validatePrecedence(spec validate.Field, name string, precedence int32) {
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

func validateSchemaRule(fld validate.Field, r *flowcontrolv1.PolicyRulesWithSubjects) {
	fld.RequireSetWithDetail("subjects", len(r.Subjects) > 0, "subjects must contain at least one value")
	validate.Each(fld, "subjects", r.Subjects, validateSubject)
	fld.RequireSetWithDetail("", len(r.ResourceRules) > 0 || len(r.NonResourceRules) > 0,
		"at least one of resourceRules and nonResourceRules has to be non-empty")
	validate.Each(fld, "resourceRules", r.ResourceRules, validateResourceRule)
	validate.Each(fld, "nonResourceRules", r.NonResourceRules, validateNonResourceRule)
}

// validateSubject requires exactly the field that belongs to the kind of the subject.
func validateSubject(fld validate.Field, subject *flowcontrolv1.Subject) {
	members := []struct {
		kind     flowcontrolv1.SubjectKind
		name     string
		isSet    bool
		validate func()
	}{
		{
			kind:     flowcontrolv1.SubjectKindUser,
			name:     "user",
			isSet:    subject.User != nil,
			validate: func() { fld.Child("user").RequireSet("name", subject.User.Name != "") },
		},
		{
			kind:     flowcontrolv1.SubjectKindGroup,
			name:     "group",
			isSet:    subject.Group != nil,
			validate: func() { fld.Child("group").RequireSet("name", subject.Group.Name != "") },
		},
		{kind: flowcontrolv1.SubjectKindServiceAccount, name: "serviceAccount", isSet: subject.ServiceAccount != nil, validate: func() {
			validateServiceAccount(fld.Child("serviceAccount"), subject.ServiceAccount)
		}},
	}
	known := false
	for _, m := range members {
		if m.kind != subject.Kind {
			continue
		}
		known = true
		if m.isSet {
			m.validate()
		} else {
			fld.Required(m.name, fmt.Sprintf("%s is required when subject kind is '%s'", m.name, m.kind))
		}
	}
	if !known {
		validate.OneOf(fld, "kind", subject.Kind, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount,
			flowcontrolv1.SubjectKindUser)
		return
	}
	for _, m := range members {
		fld.ForbidSet(m.name, m.isSet && m.kind != subject.Kind, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", m.name, m.kind))
	}
}

func validateServiceAccount(fld validate.Field, account *flowcontrolv1.ServiceAccountSubject) {
	if account.Name != flowcontrolv1.NameAll {
		fld.CheckRequiredText("name", account.Name, validate.DNSSubdomain)
	}
	if account.Namespace == "" {
		fld.Required("namespace", "must specify namespace for service account")
	} else {
		fld.CheckText("namespace", account.Namespace, validate.DNSLabel)
	}
}

func validateResourceRule(fld validate.Field, rule *flowcontrolv1.ResourcePolicyRule) {
	validateVerbs(fld, rule.Verbs)
	requireWildcardOrValues(fld, "apiGroups", rule.APIGroups, "resource rules must supply at least one api group", "api groups")
	requireWildcardOrValues(fld, "resources", rule.Resources, "resource rules must supply at least one resource", "resources")
	if len(rule.Namespaces) == 0 && rule.ClusterScope {
		return
	}
	if requireWildcardOrValues(fld, "namespaces", rule.Namespaces,
		"resource rules that are not cluster scoped must supply at least one namespace", "namespaces") {
		return
	}
	for i, ns := range rule.Namespaces {
		for _, message := range validation.IsDNS1123Label(ns) {
			fld.Index("namespaces", i).Invalid("", ns, "each member of this list must be '*' or a DNS-1123 label; "+message)
		}
	}
}

func validateNonResourceRule(fld validate.Field, rule *flowcontrolv1.NonResourcePolicyRule) {
	validateVerbs(fld, rule.Verbs)
	if requireWildcardOrValues(fld, "nonResourceURLs", rule.NonResourceURLs, "nonResourceURLs must contain at least one value",
		"non-resource URLs") {
		return
	}
	for i, url := range rule.NonResourceURLs {
		if detail := nonResourcePathError(url); detail != "" {
			fld.Index("nonResourceURLs", i).Invalid("", url, detail)
		}
	}
}

func validateVerbs(fld validate.Field, verbs []string) {
	known := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	if requireWildcardOrValues(fld, "verbs", verbs, "verbs must contain at least one value", "verbs") {
		return
	}
	if slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(known, v) }) {
		fld.Add(field.NotSupported(fld.Child("verbs").FieldPath(), verbs, known))
	}
}

// requireWildcardOrValues requires values, or the wildcard alone. It reports whether there are no
// values to validate: the list is empty or has the wildcard. required is the message for an empty
// list. others describes the values in a message.
func requireWildcardOrValues(fld validate.Field, name string, values []string, required, others string) bool {
	hasWildcard := slices.Contains(values, flowcontrolv1.ResourceAll)
	fld.RequireSetWithDetail(name, len(values) > 0, required)
	if hasWildcard && len(values) > 1 {
		fld.Invalid(name, values, fmt.Sprintf("if '*' is present, must not specify other %s", others))
	}
	return hasWildcard || len(values) == 0
}

// nonResourcePathError returns the error of a non-resource path, or "" if it is valid.
func nonResourcePathError(path string) string {
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
