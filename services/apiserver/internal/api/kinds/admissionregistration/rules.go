package admissionregistration

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry/validate"
)

// compiler returns the compiler of expressions, which it creates at the first call.
type compiler func() (*expressions.Compiler, error)

// forObject returns a compiler of the expressions of one object, which limits the work on all of them.
func (c compiler) forObject() compiler {
	return sync.OnceValues(func() (*expressions.Compiler, error) {
		all, err := c()
		if err != nil {
			return nil, err
		}
		return all.Limited(), nil
	})
}

// operationRules validates the operations and resources that webhooks or policies match.
func operationRules(at validate.At, r *admissionv1.RuleWithOperations) {
	at.Present("operations", len(r.Operations) > 0)
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionv1.OperationAll) {
		at.Invalid("operations", r.Operations, "if '*' is present, must not specify other operations")
	}
	for i, o := range r.Operations {
		validate.OneOf(at.Index("operations", i), "", o, admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update)
	}
	everyOrSome(at, "apiGroups", r.APIGroups, "API groups")
	everyOrSome(at, "apiVersions", r.APIVersions, "API versions")
	for i, v := range r.APIVersions {
		at.Index("apiVersions", i).Present("", v != "")
	}
	resourceRules(at, r.Resources)
	validate.OptionalOneOf(at, "scope", r.Scope, admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope)
}

func everyOrSome(at validate.At, name string, values []string, others string) {
	at.Present(name, len(values) > 0)
	if len(values) > 1 && slices.Contains(values, "*") {
		at.Invalid(name, values, fmt.Sprintf("if '*' is present, must not specify other %s", others))
	}
}

// resourceRules validates resources and subresources. Each may be a wildcard. Among those
// without a subresource, Kubernetes compares only the last one with '*'.
func resourceRules(at validate.At, resources []string) {
	at.Present("resources", len(resources) > 0)
	every, plain := false, false
	allOf, allNamed := validate.Set[string]{}, validate.Set[string]{}
	for i, r := range resources {
		entry := at.Index("resources", i)
		entry.Present("", r != "")
		resource, sub, isSub := strings.Cut(r, "/")
		every = every || r == "*"
		switch {
		case r == "":
			continue
		case !isSub:
			plain = r != "*"
			continue
		}
		if allOf.Has(resource) {
			entry.Invalid("", r, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, r))
		}
		if allNamed.Has(sub) {
			entry.Invalid("", r, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, r))
		}
		if sub == "*" {
			allOf.Add(resource)
		}
		if resource == "*" {
			allNamed.Add(sub)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		at.Invalid("resources", resources, "if '*/*' is present, must not specify other resources")
	}
	if every && plain {
		at.Invalid("resources", resources, "if '*' is present, must not specify other resources without subresources")
	}
}

// maxConditions is the maximum number of match conditions of a webhook or policy.
const maxConditions = 64

func conditionRules(at validate.At, conditions []admissionv1.MatchCondition, sees expressions.VariableSet, compile compiler) {
	validate.MaxItems(at, "matchConditions", conditions, maxConditions)
	names := validate.Set[string]{}
	validate.Each(at, "matchConditions", conditions, func(at validate.At, c *admissionv1.MatchCondition) {
		if expression := strings.TrimSpace(c.Expression); expression == "" {
			at.Required("expression", "")
		} else if engine := ready(at, "expression", compile); engine != nil {
			invalidExpression(at, "expression", expression, engine.Check(sees, expression, cel.BoolType))
		}
		at.RequiredText("name", c.Name, validate.QualifiedName)
		if c.Name != "" {
			validate.Unique(at, "name", c.Name, names)
		}
	})
}

func ready(at validate.At, name string, compile compiler) *expressions.Compiler {
	engine, err := compile()
	if err != nil {
		at.Add(field.InternalError(at.Child(name).Path(), err))
		return nil
	}
	return engine
}

func invalidExpression(at validate.At, name, expression string, err error) {
	if err != nil {
		at.Invalid(name, expression, err.Error())
	}
}

func policyAndMatch(at validate.At, failure *admissionv1.FailurePolicyType, match *admissionv1.MatchPolicyType) {
	validate.OptionalOneOf(at, "failurePolicy", failure, admissionv1.Fail, admissionv1.Ignore)
	validate.OptionalOneOf(at, "matchPolicy", match, admissionv1.Equivalent, admissionv1.Exact)
}
