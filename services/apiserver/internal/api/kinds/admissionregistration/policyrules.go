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

// policyRules validates a policy. old is the live one, or nil.
func policyRules(fldPath validate.Path, p, old *admissionv1.ValidatingAdmissionPolicy, compile compiler) {
	spec, s := fldPath.Child("spec"), &p.Spec
	compile = compile.forObject()
	sees := expressions.VariableSet{Params: s.ParamKind != nil, Authorizer: true}
	spec.Present("failurePolicy", s.FailurePolicy != nil)
	policyAndMatch(spec, s.FailurePolicy, nil)
	validate.Optional(spec, "paramKind", s.ParamKind, paramKindRules)
	spec.Present("matchConstraints", s.MatchConstraints != nil)
	validate.Optional(spec, "matchConstraints", s.MatchConstraints, func(fldPath validate.Path, m *admissionv1.MatchResources) {
		matchRules(fldPath, m)
		fldPath.Present("resourceRules", len(m.ResourceRules) > 0)
	})
	if old == nil || !validate.SemanticEqual(s.ParamKind, old.Spec.ParamKind) || !validate.SemanticEqual(s.MatchConditions, old.Spec.MatchConditions) {
		conditionRules(spec, s.MatchConditions, sees, compile)
	}
	engine := ready(spec, "validations", compile)
	if engine == nil {
		return
	}
	policy := engine.Policy()
	validate.Each(spec, "variables", s.Variables, func(fldPath validate.Path, v *admissionv1.Variable) { variableRules(fldPath, v, sees, policy) })
	if len(s.Validations) == 0 && len(s.AuditAnnotations) == 0 {
		const some = "validations or auditAnnotations must contain at least one item"
		spec.Required("validations", some)
		spec.Required("auditAnnotations", some)
		return
	}
	validate.Each(spec, "validations", s.Validations, func(fldPath validate.Path, v *admissionv1.Validation) { validationRules(fldPath, v, sees, policy) })
	annotationRules(spec, p, sees, policy)
}

// paramKindRules validates the kind of a policy's parameters, which may be any kind.
func paramKindRules(fldPath validate.Path, k *admissionv1.ParamKind) {
	group, version, grouped := strings.Cut(k.APIVersion, "/")
	if !grouped {
		group, version = "", k.APIVersion
	}
	joined := func(name, value, prefix string, messages []string) {
		if len(messages) > 0 {
			fldPath.Invalid(name, value, prefix+strings.Join(messages, ","))
		}
	}
	switch {
	case k.APIVersion == "":
		fldPath.Required("apiVersion", "")
	case strings.Contains(version, "/") && k.APIVersion != "/":
		fldPath.Invalid("apiVersion", k.APIVersion, "unexpected GroupVersion string: "+k.APIVersion)
	default:
		if group != "" {
			joined("apiVersion", group, "", validation.IsDNS1123Subdomain(group))
		}
		if version == "" {
			fldPath.Invalid("apiVersion", k.APIVersion, "version must be specified")
		} else {
			joined("apiVersion", version, "", validation.IsDNS1035Label(version))
		}
	}
	if k.Kind == "" {
		fldPath.Required("kind", "")
	} else {
		joined("kind", k.Kind, "may have mixed case, but should otherwise match: ", validation.IsDNS1035Label(strings.ToLower(k.Kind)))
	}
}

// matchRules validates the match resources of a policy or binding.
func matchRules(fldPath validate.Path, m *admissionv1.MatchResources) {
	fldPath.Present("matchPolicy", m.MatchPolicy != nil)
	policyAndMatch(fldPath, nil, m.MatchPolicy)
	fldPath.Present("namespaceSelector", m.NamespaceSelector != nil)
	fldPath.Selector("namespaceSelector", m.NamespaceSelector, false)
	fldPath.Present("objectSelector", m.ObjectSelector != nil)
	fldPath.Selector("objectSelector", m.ObjectSelector, false)
	for _, list := range []struct {
		name  string
		rules []admissionv1.NamedRuleWithOperations
	}{{"resourceRules", m.ResourceRules}, {"excludeResourceRules", m.ExcludeResourceRules}} {
		validate.Each(fldPath, list.name, list.rules, func(fldPath validate.Path, r *admissionv1.NamedRuleWithOperations) {
			names := validate.Set[string]{}
			for i, name := range r.ResourceNames {
				fldPath.Index("resourceNames", i).Text("", name, validate.PathSegment)
				validate.Unique(fldPath.Index("resourceNames", i), "", name, names)
			}
			operationRules(fldPath, &r.RuleWithOperations)
		})
	}
}

var identifier = regexp.MustCompile("^[_a-zA-Z][_a-zA-Z0-9]*$")

// reserved returns the words that cannot be names of variables.
func reserved() []string {
	return []string{"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
		"let", "loop", "package", "namespace", "return", "var", "void", "while"}
}

func variableRules(fldPath validate.Path, v *admissionv1.Variable, sees expressions.VariableSet, policy *expressions.Policy) {
	switch {
	case strings.TrimSpace(v.Name) == "":
		fldPath.Required("name", "name is not specified")
	case !identifier.MatchString(v.Name) || slices.Contains(reserved(), v.Name):
		fldPath.Invalid("name", v.Name, "name is not a valid CEL identifier")
	}
	if strings.TrimSpace(v.Expression) == "" {
		fldPath.Required("expression", "expression is not specified")
	} else {
		invalidExpression(fldPath, "expression", v.Expression, policy.Declare(sees, v.Name, v.Expression))
	}
}

func validationRules(fldPath validate.Path, v *admissionv1.Validation, sees expressions.VariableSet, policy *expressions.Policy) {
	if strings.TrimSpace(v.Expression) == "" {
		fldPath.Required("expression", "expression is not specified")
	} else {
		invalidExpression(fldPath, "expression", v.Expression, policy.Check(sees, v.Expression, cel.BoolType))
	}
	if v.MessageExpression != "" {
		if strings.TrimSpace(v.MessageExpression) == "" {
			fldPath.Invalid("messageExpression", v.MessageExpression, "must be non-empty if specified")
		} else {
			sees.Authorizer = false
			invalidExpression(fldPath, "messageExpression", v.MessageExpression, policy.Check(sees, v.MessageExpression, cel.StringType))
		}
	}
	switch text := strings.TrimSpace(v.Message); {
	case v.Message != "" && text == "":
		fldPath.Invalid("message", v.Message, "message must be non-empty if specified")
	case strings.ContainsAny(text, "\n\r"):
		fldPath.Invalid("message", v.Message, "message must not contain line breaks")
	}
	validate.OptionalOneOf(fldPath, "reason", v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)
}

const (
	// maxAnnotations is the maximum number of annotations of a policy.
	maxAnnotations = 20
	// maxAnnotationExpression is the maximum size in bytes.
	maxAnnotationExpression = 5 * 1024
	// maxFieldRef is the maximum size in bytes. Its parser is recursive, and the stack is limited.
	maxFieldRef = 16 << 10
)

func annotationRules(spec validate.Path, p *admissionv1.ValidatingAdmissionPolicy, sees expressions.VariableSet, policy *expressions.Policy) {
	annotations := p.Spec.AuditAnnotations
	if len(annotations) > maxAnnotations {
		spec.Invalid("auditAnnotations", annotations,
			fmt.Sprintf("must not have more than %d auditAnnotations", maxAnnotations))
	}
	keys := validate.Set[string]{}
	validate.Each(spec, "auditAnnotations", annotations, func(fldPath validate.Path, a *admissionv1.AuditAnnotation) {
		if p.Name != "" {
			fldPath.Text("key", p.Name+"/"+a.Key, validate.QualifiedName)
		} else {
			fldPath.Invalid("key", a.Key, "requires metadata.name be non-empty")
		}
		switch expression := strings.TrimSpace(a.ValueExpression); {
		case expression == "":
			fldPath.Required("valueExpression", "valueExpression is not specified")
		case len(expression) > maxAnnotationExpression:
			fldPath.Required("valueExpression", fmt.Sprintf("must not exceed %d bytes in length", maxAnnotationExpression))
		default:
			invalidExpression(fldPath, "valueExpression", a.ValueExpression, policy.Check(sees, expression, cel.StringType, cel.NullType))
		}
		validate.Unique(fldPath, "key", a.Key, keys)
	})
}

func policyStatusRules(fldPath validate.Path, p, _ *admissionv1.ValidatingAdmissionPolicy) {
	status := fldPath.Child("status")
	validate.Optional(status, "typeChecking", p.Status.TypeChecking, func(fldPath validate.Path, c *admissionv1.TypeChecking) {
		validate.Each(fldPath, "expressionWarnings", c.ExpressionWarnings, func(fldPath validate.Path, w *admissionv1.ExpressionWarning) {
			fldPath.Present("warning", w.Warning != "")
			ref := strings.TrimSpace(w.FieldRef)
			if ref == "" {
				fldPath.Required("fieldRef", "")
			} else if len(ref) > maxFieldRef {
				fldPath.TooLong("fieldRef", maxFieldRef)
			} else if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
				fldPath.Invalid("fieldRef", ref, fmt.Sprintf("invalid JSONPath: %v", err))
			}
		})
	})
	status.Conditions("conditions", p.Status.Conditions)
}

func bindingRules(fldPath validate.Path, b *admissionv1.ValidatingAdmissionPolicyBinding) {
	spec := fldPath.Child("spec")
	spec.RequiredText("policyName", b.Spec.PolicyName, validate.DNSSubdomain)
	validate.Optional(spec, "paramRef", b.Spec.ParamRef, paramRefRules)
	validate.Optional(spec, "matchResources", b.Spec.MatchResources, matchRules)
	actionRules(spec, b.Spec.ValidationActions)
}

func paramRefRules(fldPath validate.Path, r *admissionv1.ParamRef) {
	const either = "name and selector are mutually exclusive"
	both := r.Name != "" && r.Selector != nil
	if r.Name != "" {
		fldPath.Text("name", r.Name, validate.PathSegment)
	}
	fldPath.Absent("name", both, either)
	fldPath.Selector("selector", r.Selector, false)
	fldPath.Absent("selector", both, either)
	fldPath.PresentWithDetail("", r.Name != "" || r.Selector != nil, "one of name or selector must be specified")
	if action := r.ParameterNotFoundAction; action == nil || *action == "" {
		fldPath.Required("parameterNotFoundAction", "")
	} else {
		validate.OneOf(fldPath, "parameterNotFoundAction", *action, admissionv1.DenyAction, admissionv1.AllowAction)
	}
}

func actionRules(spec validate.Path, actions []admissionv1.ValidationAction) {
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
	spec.PresentWithDetail("validationActions", len(actions) > 0, "at least one validation action is required")
}
