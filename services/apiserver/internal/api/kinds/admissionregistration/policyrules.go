package admissionregistration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/jsonpath"

	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validatePolicy validates a policy. old is the live one, or nil.
func validatePolicy(fld validate.Field, apiPolicy, old *admissionregistrationv1.ValidatingAdmissionPolicy, compile compiler) {
	spec, s := fld.Child("spec"), &apiPolicy.Spec
	compile = compile.forObject()
	visible := expressions.VariableSet{Params: s.ParamKind != nil, Authorizer: true}
	spec.RequireSet("failurePolicy", s.FailurePolicy != nil)
	validateFailureAndMatchPolicy(spec, s.FailurePolicy, nil)
	validate.Optional(spec, "paramKind", s.ParamKind, validateParamKind)
	spec.RequireSet("matchConstraints", s.MatchConstraints != nil)
	validate.Optional(spec, "matchConstraints", s.MatchConstraints, func(fld validate.Field, m *admissionregistrationv1.MatchResources) {
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
		func(fld validate.Field, v *admissionregistrationv1.Variable) {
			validateVariable(fld, v, visible, policy)
		},
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
		func(fld validate.Field, v *admissionregistrationv1.Validation) {
			validateValidation(fld, v, visible, policy)
		},
	)
	validateAuditAnnotations(spec, apiPolicy, visible, policy)
}

// validateParamKind validates the kind of a policy's parameters, which may be any kind.
func validateParamKind(fld validate.Field, paramKind *admissionregistrationv1.ParamKind) {
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
func validateMatchResources(fld validate.Field, constraints *admissionregistrationv1.MatchResources) {
	fld.RequireSet("matchPolicy", constraints.MatchPolicy != nil)
	validateFailureAndMatchPolicy(fld, nil, constraints.MatchPolicy)
	fld.RequireSet("namespaceSelector", constraints.NamespaceSelector != nil)
	fld.CheckSelector("namespaceSelector", constraints.NamespaceSelector, false)
	fld.RequireSet("objectSelector", constraints.ObjectSelector != nil)
	fld.CheckSelector("objectSelector", constraints.ObjectSelector, false)
	for _, list := range []struct {
		name  string
		rules []admissionregistrationv1.NamedRuleWithOperations
	}{{"resourceRules", constraints.ResourceRules}, {"excludeResourceRules", constraints.ExcludeResourceRules}} {
		validate.Each(fld, list.name, list.rules, func(fld validate.Field, r *admissionregistrationv1.NamedRuleWithOperations) {
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

func validateVariable(fld validate.Field, variable *admissionregistrationv1.Variable, visible expressions.VariableSet, policy *expressions.Policy) {
	switch {
	case strings.TrimSpace(variable.Name) == "":
		fld.Required("name", "name is not specified")
	case !identifier.MatchString(variable.Name) || slices.Contains(reservedWords(), variable.Name):
		fld.Invalid("name", variable.Name, "name is not a valid CEL identifier")
	}
	if strings.TrimSpace(variable.Expression) == "" {
		fld.Required("expression", "expression is not specified")
	} else {
		reportInvalidExpression(fld, "expression", variable.Expression, policy.Declare(visible, variable.Name, variable.Expression))
	}
}

func validateValidation(
	fld validate.Field,
	validation *admissionregistrationv1.Validation,
	visible expressions.VariableSet,
	policy *expressions.Policy,
) {
	if strings.TrimSpace(validation.Expression) == "" {
		fld.Required("expression", "expression is not specified")
	} else {
		reportInvalidExpression(fld, "expression", validation.Expression, policy.Check(visible, validation.Expression, cel.BoolType))
	}
	if validation.MessageExpression != "" {
		if strings.TrimSpace(validation.MessageExpression) == "" {
			fld.Invalid("messageExpression", validation.MessageExpression, "must be non-empty if specified")
		} else {
			visible.Authorizer = false
			reportInvalidExpression(fld, "messageExpression", validation.MessageExpression, policy.Check(visible, validation.MessageExpression, cel.StringType))
		}
	}
	switch text := strings.TrimSpace(validation.Message); {
	case validation.Message != "" && text == "":
		fld.Invalid("message", validation.Message, "message must be non-empty if specified")
	case strings.ContainsAny(text, "\n\r"):
		fld.Invalid("message", validation.Message, "message must not contain line breaks")
	}
	validate.OptionalOneOf(fld, "reason", validation.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
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
	apiPolicy *admissionregistrationv1.ValidatingAdmissionPolicy,
	visible expressions.VariableSet,
	policy *expressions.Policy,
) {
	annotations := apiPolicy.Spec.AuditAnnotations
	if len(annotations) > maxAnnotations {
		spec.Invalid("auditAnnotations", annotations,
			fmt.Sprintf("must not have more than %d auditAnnotations", maxAnnotations))
	}
	keys := validate.Set[string]{}
	validate.Each(spec, "auditAnnotations", annotations, func(fld validate.Field, auditAnnotation *admissionregistrationv1.AuditAnnotation) {
		if apiPolicy.Name != "" {
			fld.CheckText("key", apiPolicy.Name+"/"+auditAnnotation.Key, validate.QualifiedName)
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

func validatePolicyStatus(fld validate.Field, policy, _ *admissionregistrationv1.ValidatingAdmissionPolicy) {
	status := fld.Child("status")
	validate.Optional(status, "typeChecking", policy.Status.TypeChecking, func(fld validate.Field, c *admissionregistrationv1.TypeChecking) {
		validate.Each(fld, "expressionWarnings", c.ExpressionWarnings, func(fld validate.Field, w *admissionregistrationv1.ExpressionWarning) {
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

func validateBinding(fld validate.Field, apiBinding, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	spec := fld.Child("spec")
	spec.CheckRequiredText("policyName", apiBinding.Spec.PolicyName, validate.DNSSubdomain)
	validate.Optional(spec, "paramRef", apiBinding.Spec.ParamRef, validateParamRef)
	validate.Optional(spec, "matchResources", apiBinding.Spec.MatchResources, validateMatchResources)
	validateActions(spec, apiBinding.Spec.ValidationActions)
}

func validateParamRef(fld validate.Field, paramRef *admissionregistrationv1.ParamRef) {
	const either = "name and selector are mutually exclusive"
	both := paramRef.Name != "" && paramRef.Selector != nil
	if paramRef.Name != "" {
		fld.CheckText("name", paramRef.Name, validate.PathSegment)
	}
	fld.ForbidSet("name", both, either)
	fld.CheckSelector("selector", paramRef.Selector, false)
	fld.ForbidSet("selector", both, either)
	fld.RequireSetWithDetail("", paramRef.Name != "" || paramRef.Selector != nil, "one of name or selector must be specified")
	if action := paramRef.ParameterNotFoundAction; action == nil || *action == "" {
		fld.Required("parameterNotFoundAction", "")
	} else {
		validate.OneOf(fld, "parameterNotFoundAction", *action, admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)
	}
}

func validateActions(spec validate.Field, actions []admissionregistrationv1.ValidationAction) {
	seen := validate.Set[admissionregistrationv1.ValidationAction]{}
	for i, action := range actions {
		entry := spec.Index("validationActions", i)
		validate.OneOf(entry, "", action, admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)
		validate.Unique(entry, "", action, seen)
	}
	if seen.Has(admissionregistrationv1.Deny) && seen.Has(admissionregistrationv1.Warn) {
		spec.Invalid("validationActions", actions,
			"must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)")
	}
	spec.RequireSetWithDetail("validationActions", len(actions) > 0, "at least one validation action is required")
}
