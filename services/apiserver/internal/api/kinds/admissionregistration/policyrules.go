package admissionregistration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/jsonpath"

	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validatePolicy validates a policy. old is the live one, or nil.
func validatePolicy(fld validate.Field, p, old *admissionv1.ValidatingAdmissionPolicy, compile compiler) {
	spec, s := fld.Child("spec"), &p.Spec
	compile = compile.forObject()
	visible := expressions.VariableSet{Params: s.ParamKind != nil, Authorizer: true}
	spec.RequireSet("failurePolicy", s.FailurePolicy != nil)
	validateFailureAndMatchPolicy(spec, s.FailurePolicy, nil)
	validate.Optional(spec, "paramKind", s.ParamKind, validateParamKind)
	spec.RequireSet("matchConstraints", s.MatchConstraints != nil)
	validate.Optional(spec, "matchConstraints", s.MatchConstraints, func(fld validate.Field, m *admissionv1.MatchResources) {
		validateMatchResources(fld, m)
		fld.RequireSet("resourceRules", len(m.ResourceRules) > 0)
	})
	if old == nil || !validate.SemanticEqual(s.ParamKind, old.Spec.ParamKind) ||
		!validate.SemanticEqual(s.MatchConditions, old.Spec.MatchConditions) {
		validateMatchConditions(spec, s.MatchConditions, visible, compile)
	}
	engine := compilerOrError(spec, "validations", compile)
	if engine == nil {
		return
	}
	policy := engine.Policy()
	validate.Each(
		spec,
		"variables",
		s.Variables,
		func(fld validate.Field, v *admissionv1.Variable) { validateVariable(fld, v, visible, policy) },
	)
	if len(s.Validations) == 0 && len(s.AuditAnnotations) == 0 {
		const some = "validations or auditAnnotations must contain at least one item"
		spec.Required("validations", some)
		spec.Required("auditAnnotations", some)
		return
	}
	validate.Each(
		spec,
		"validations",
		s.Validations,
		func(fld validate.Field, v *admissionv1.Validation) { validateValidation(fld, v, visible, policy) },
	)
	validateAuditAnnotations(spec, p, visible, policy)
}

// validateParamKind validates the kind of a policy's parameters, which may be any kind.
func validateParamKind(fld validate.Field, paramKind *admissionv1.ParamKind) {
	group, version, grouped := strings.Cut(paramKind.APIVersion, "/")
	if !grouped {
		group, version = "", paramKind.APIVersion
	}
	joined := func(name, value, prefix string, messages []string) {
		if len(messages) > 0 {
			fld.Invalid(name, value, prefix+strings.Join(messages, ","))
		}
	}
	switch {
	case paramKind.APIVersion == "":
		fld.Required("apiVersion", "")
	case strings.Contains(version, "/") && paramKind.APIVersion != "/":
		fld.Invalid("apiVersion", paramKind.APIVersion, "unexpected GroupVersion string: "+paramKind.APIVersion)
	default:
		if group != "" {
			joined("apiVersion", group, "", validation.IsDNS1123Subdomain(group))
		}
		if version == "" {
			fld.Invalid("apiVersion", paramKind.APIVersion, "version must be specified")
		} else {
			joined("apiVersion", version, "", validation.IsDNS1035Label(version))
		}
	}
	if paramKind.Kind == "" {
		fld.Required("kind", "")
	} else {
		joined("kind", paramKind.Kind, "may have mixed case, but should otherwise match: ", validation.IsDNS1035Label(strings.ToLower(paramKind.Kind)))
	}
}

// validateMatchResources validates the match resources of a policy or binding.
func validateMatchResources(fld validate.Field, m *admissionv1.MatchResources) {
	fld.RequireSet("matchPolicy", m.MatchPolicy != nil)
	validateFailureAndMatchPolicy(fld, nil, m.MatchPolicy)
	fld.RequireSet("namespaceSelector", m.NamespaceSelector != nil)
	fld.CheckSelector("namespaceSelector", m.NamespaceSelector, false)
	fld.RequireSet("objectSelector", m.ObjectSelector != nil)
	fld.CheckSelector("objectSelector", m.ObjectSelector, false)
	for _, list := range []struct {
		name  string
		rules []admissionv1.NamedRuleWithOperations
	}{{"resourceRules", m.ResourceRules}, {"excludeResourceRules", m.ExcludeResourceRules}} {
		validate.Each(fld, list.name, list.rules, func(fld validate.Field, r *admissionv1.NamedRuleWithOperations) {
			names := validate.Set[string]{}
			for i, name := range r.ResourceNames {
				fld.Index("resourceNames", i).CheckText("", name, validate.PathSegment)
				validate.Unique(fld.Index("resourceNames", i), "", name, names)
			}
			validateOperations(fld, &r.RuleWithOperations)
		})
	}
}

var identifier = regexp.MustCompile("^[_a-zA-Z][_a-zA-Z0-9]*$")

// reservedWords returns the words that cannot be names of variables.
func reservedWords() []string {
	return []string{"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
		"let", "loop", "package", "namespace", "return", "var", "void", "while"}
}

func validateVariable(fld validate.Field, v *admissionv1.Variable, visible expressions.VariableSet, policy *expressions.Policy) {
	switch {
	case strings.TrimSpace(v.Name) == "":
		fld.Required("name", "name is not specified")
	case !identifier.MatchString(v.Name) || slices.Contains(reservedWords(), v.Name):
		fld.Invalid("name", v.Name, "name is not a valid CEL identifier")
	}
	if strings.TrimSpace(v.Expression) == "" {
		fld.Required("expression", "expression is not specified")
	} else {
		reportInvalidExpression(fld, "expression", v.Expression, policy.Declare(visible, v.Name, v.Expression))
	}
}

func validateValidation(
	fld validate.Field,
	v *admissionv1.Validation,
	visible expressions.VariableSet,
	policy *expressions.Policy,
) {
	if strings.TrimSpace(v.Expression) == "" {
		fld.Required("expression", "expression is not specified")
	} else {
		reportInvalidExpression(fld, "expression", v.Expression, policy.Check(visible, v.Expression, cel.BoolType))
	}
	if v.MessageExpression != "" {
		if strings.TrimSpace(v.MessageExpression) == "" {
			fld.Invalid("messageExpression", v.MessageExpression, "must be non-empty if specified")
		} else {
			visible.Authorizer = false
			reportInvalidExpression(fld, "messageExpression", v.MessageExpression, policy.Check(visible, v.MessageExpression, cel.StringType))
		}
	}
	switch text := strings.TrimSpace(v.Message); {
	case v.Message != "" && text == "":
		fld.Invalid("message", v.Message, "message must be non-empty if specified")
	case strings.ContainsAny(text, "\n\r"):
		fld.Invalid("message", v.Message, "message must not contain line breaks")
	}
	validate.OptionalOneOf(fld, "reason", v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
		metav1.StatusReasonRequestEntityTooLarge)
}

const (
	// maxAnnotations is the maximum number of annotations of a policy.
	maxAnnotations = 20
	// maxAnnotationExpression is the maximum size in bytes.
	maxAnnotationExpression = 5 * 1024
	// maxFieldRef is the maximum size in bytes. Its parser is recursive, and the stack is limited.
	maxFieldRef = 16 << 10
)

func validateAuditAnnotations(
	spec validate.Field,
	p *admissionv1.ValidatingAdmissionPolicy,
	visible expressions.VariableSet,
	policy *expressions.Policy,
) {
	annotations := p.Spec.AuditAnnotations
	if len(annotations) > maxAnnotations {
		spec.Invalid("auditAnnotations", annotations,
			fmt.Sprintf("must not have more than %d auditAnnotations", maxAnnotations))
	}
	keys := validate.Set[string]{}
	validate.Each(spec, "auditAnnotations", annotations, func(fld validate.Field, auditAnnotation *admissionv1.AuditAnnotation) {
		if p.Name != "" {
			fld.CheckText("key", p.Name+"/"+auditAnnotation.Key, validate.QualifiedName)
		} else {
			fld.Invalid("key", auditAnnotation.Key, "requires metadata.name be non-empty")
		}
		switch expression := strings.TrimSpace(auditAnnotation.ValueExpression); {
		case expression == "":
			fld.Required("valueExpression", "valueExpression is not specified")
		case len(expression) > maxAnnotationExpression:
			fld.Required("valueExpression", fmt.Sprintf("must not exceed %d bytes in length", maxAnnotationExpression))
		default:
			reportInvalidExpression(
				fld,
				"valueExpression",
				auditAnnotation.ValueExpression,
				policy.Check(visible, expression, cel.StringType, cel.NullType),
			)
		}
		validate.Unique(fld, "key", auditAnnotation.Key, keys)
	})
}

func validatePolicyStatus(fld validate.Field, policy, _ *admissionv1.ValidatingAdmissionPolicy) {
	status := fld.Child("status")
	validate.Optional(status, "typeChecking", policy.Status.TypeChecking, func(fld validate.Field, c *admissionv1.TypeChecking) {
		validate.Each(fld, "expressionWarnings", c.ExpressionWarnings, func(fld validate.Field, w *admissionv1.ExpressionWarning) {
			fld.RequireSet("warning", w.Warning != "")
			ref := strings.TrimSpace(w.FieldRef)
			if ref == "" {
				fld.Required("fieldRef", "")
			} else if len(ref) > maxFieldRef {
				fld.TooLong("fieldRef", maxFieldRef)
			} else if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
				fld.Invalid("fieldRef", ref, fmt.Sprintf("invalid JSONPath: %v", err))
			}
		})
	})
	status.CheckConditions("conditions", policy.Status.Conditions)
}

func validateBinding(fld validate.Field, b, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
	spec := fld.Child("spec")
	spec.CheckRequiredText("policyName", b.Spec.PolicyName, validate.DNSSubdomain)
	validate.Optional(spec, "paramRef", b.Spec.ParamRef, validateParamRef)
	validate.Optional(spec, "matchResources", b.Spec.MatchResources, validateMatchResources)
	validateActions(spec, b.Spec.ValidationActions)
}

func validateParamRef(fld validate.Field, r *admissionv1.ParamRef) {
	const either = "name and selector are mutually exclusive"
	both := r.Name != "" && r.Selector != nil
	if r.Name != "" {
		fld.CheckText("name", r.Name, validate.PathSegment)
	}
	fld.ForbidSet("name", both, either)
	fld.CheckSelector("selector", r.Selector, false)
	fld.ForbidSet("selector", both, either)
	fld.RequireSetWithDetail("", r.Name != "" || r.Selector != nil, "one of name or selector must be specified")
	if action := r.ParameterNotFoundAction; action == nil || *action == "" {
		fld.Required("parameterNotFoundAction", "")
	} else {
		validate.OneOf(fld, "parameterNotFoundAction", *action, admissionv1.DenyAction, admissionv1.AllowAction)
	}
}

func validateActions(spec validate.Field, actions []admissionv1.ValidationAction) {
	seen := validate.Set[admissionv1.ValidationAction]{}
	for i, action := range actions {
		entry := spec.Index("validationActions", i)
		validate.OneOf(entry, "", action, admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)
		validate.Unique(entry, "", action, seen)
	}
	if seen.Has(admissionv1.Deny) && seen.Has(admissionv1.Warn) {
		spec.Invalid("validationActions", actions,
			"must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)")
	}
	spec.RequireSetWithDetail("validationActions", len(actions) > 0, "at least one validation action is required")
}
