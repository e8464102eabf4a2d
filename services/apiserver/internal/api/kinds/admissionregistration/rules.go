package admissionregistration

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry/validate"
)

// compiler returns the compiler of expressions, which it creates at the first call.
type compiler func() (*expressions.Compiler, error)

// forObject returns a compiler of the expressions of one object, which limits the work on all of
// them.
func (c compiler) forObject() compiler {
	return sync.OnceValues(func() (*expressions.Compiler, error) {
		all, err := c()
		if err != nil {
			return nil, err
		}
		return all.WithLimit(), nil
	})
}

// validateOperations validates the operations and resources that webhooks or policies match.
func validateOperations(fld validate.Field, operations *admissionregistrationv1.RuleWithOperations) {
	fld.RequireSet("operations", len(operations.Operations) > 0)
	if len(operations.Operations) > 1 && slices.Contains(operations.Operations, admissionregistrationv1.OperationAll) {
		fld.Invalid("operations", operations.Operations, "if '*' is present, must not specify other operations")
	}
	for i, o := range operations.Operations {
		validate.OneOf(fld.Index("operations", i), "", o, admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create,
			admissionregistrationv1.Delete, admissionregistrationv1.Update)
	}
	requireWildcardOrValues(fld, "apiGroups", operations.APIGroups, "API groups")
	requireWildcardOrValues(fld, "apiVersions", operations.APIVersions, "API versions")
	for i, v := range operations.APIVersions {
		fld.Index("apiVersions", i).RequireSet("", v != "")
	}
	validateResources(fld, operations.Resources)
	validate.OptionalOneOf(fld, "scope", operations.Scope, admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)
}

// requireWildcardOrValues requires values, or only the wildcard. others describes the values in
// messages.
func requireWildcardOrValues(fld validate.Field, name string, values []string, others string) {
	fld.RequireSet(name, len(values) > 0)
	if len(values) > 1 && slices.Contains(values, "*") {
		fld.Invalid(name, values, fmt.Sprintf("if '*' is present, must not specify other %s", others))
	}
}

// validateResources validates resources and subresources. Each may be a wildcard. Among those
// without a subresource, Kubernetes compares only the last one with '*'.
func validateResources(fld validate.Field, resources []string) {
	fld.RequireSet("resources", len(resources) > 0)
	hasWildcard, lastIsNamed := false, false    // among the entries without a subresource
	wholeResources := validate.Set[string]{}    // R of "R/*"
	wholeSubresources := validate.Set[string]{} // S of "*/S"
	for i, r := range resources {
		entry := fld.Index("resources", i)
		entry.RequireSet("", r != "")
		resource, subresource, hasSubresource := strings.Cut(r, "/")
		hasWildcard = hasWildcard || r == "*"
		switch {
		case r == "":
			continue
		case !hasSubresource:
			lastIsNamed = r != "*"
			continue
		}
		if wholeResources.Has(resource) {
			entry.Invalid("", r, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, r))
		}
		if wholeSubresources.Has(subresource) {
			entry.Invalid("", r, fmt.Sprintf("if '*/%s' is present, must not specify %s", subresource, r))
		}
		if subresource == "*" {
			wholeResources.Add(resource)
		}
		if resource == "*" {
			wholeSubresources.Add(subresource)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		fld.Invalid("resources", resources, "if '*/*' is present, must not specify other resources")
	}
	if hasWildcard && lastIsNamed {
		fld.Invalid("resources", resources, "if '*' is present, must not specify other resources without subresources")
	}
}

// maxConditions is the maximum number of match conditions of a webhook or policy.
const maxConditions = 64

// validateMatchConditions validates the match conditions of a webhook or policy. visible are the
// variables of their expressions.
func validateMatchConditions(
	fld validate.Field,
	conditions []admissionregistrationv1.MatchCondition,
	visible expressions.VariableSet,
	compile compiler,
) {
	validate.MaxItems(fld, "matchConditions", conditions, maxConditions)
	names := validate.Set[string]{}
	validate.Each(fld, "matchConditions", conditions, func(fld validate.Field, matchCondition *admissionregistrationv1.MatchCondition) {
		if expression := strings.TrimSpace(matchCondition.Expression); expression == "" {
			fld.Required("expression", "")
		} else if engine := compilerOrError(fld, "expression", compile); engine != nil {
			reportInvalidExpression(fld, "expression", expression, engine.Check(visible, expression, cel.BoolType))
		}
		fld.CheckRequiredText("name", matchCondition.Name, validate.QualifiedName)
		if matchCondition.Name != "" {
			validate.Unique(fld, "name", matchCondition.Name, names)
		}
	})
}

// compilerOrError returns the compiler of expressions, or reports why it is missing and returns
// nil.
func compilerOrError(fld validate.Field, name string, compile compiler) *expressions.Compiler {
	engine, err := compile()
	if err != nil {
		fld.Add(field.InternalError(fld.Child(name).FieldPath(), err))
		return nil
	}
	return engine
}

// reportInvalidExpression reports the error of an expression, if there is one.
func reportInvalidExpression(fld validate.Field, name, expression string, err error) {
	if err != nil {
		fld.Invalid(name, expression, err.Error())
	}
}

// validateFailureAndMatchPolicy validates both policies, which may be nil.
func validateFailureAndMatchPolicy(
	fld validate.Field,
	failure *admissionregistrationv1.FailurePolicyType,
	match *admissionregistrationv1.MatchPolicyType,
) {
	validate.OptionalOneOf(fld, "failurePolicy", failure, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	validate.OptionalOneOf(fld, "matchPolicy", match, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
}
