package rules

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

const (
	// maxRuleCost is the limit of a rule's estimated cost, multiplied by the number of its
	// evaluations per resource.
	maxRuleCost = 10_000_000
	// maxSchemaCost is the limit for all rules of a schema.
	maxSchemaCost = 100_000_000
	// maxReportedRules is the number of the most expensive rules that are named in errors.
	maxReportedRules = 4
)

// SchemaCheck is the schema of a definition's version to check.
type SchemaCheck struct {
	Schema *v1.JSONSchemaProps
	// Path is the path of the schema, such as spec.versions[0].schema.openAPIV3Schema.
	Path *field.Path
	// KnownErrors holds other errors of the schema. Rules of the schemas that contain such an error
	// are not compiled.
	KnownErrors field.ErrorList
	// AllowExpensive lets single rules exceed the cost limit, because the definition had such rules
	// before the update.
	AllowExpensive bool
}

// CheckSchema compiles the rules and their messages. It returns errors for rules that do not
// compile, that cost too much, or that refer to an old value that cannot be known. They follow all
// other errors of the schema.
func (c *Compiler) CheckSchema(d SchemaCheck) field.ErrorList { return c.NewSchemaChecker()(d) }

// NewSchemaChecker returns CheckSchema for the schemas of one definition, one after the other.
// Equal expressions are compiled once.
func (c *Compiler) NewSchemaChecker() func(SchemaCheck) field.ErrorList {
	return c.newSession().checkSchema
}

// checkSchema implements CheckSchema.
func (s *session) checkSchema(checked SchemaCheck) field.ErrorList {
	if checked.Schema == nil || !hasRules(checked.Schema) {
		return nil
	}
	invalidPaths := make([]string, len(checked.KnownErrors))
	for i, e := range checked.KnownErrors {
		invalidPaths[i] = e.Field
	}
	c := schemaCheck{session: s, invalidPaths: invalidPaths, allowExpensive: checked.AllowExpensive}
	rootInstances := uint64(1)
	c.checkNode(checked.Path, checked.Schema, nil, &position{root: true, maxInstances: &rootInstances})
	return append(c.errs, c.checkTotal(checked.Path)...)
}

// hasRules reports whether a schema or one below it has rules.
func hasRules(schemaProps *v1.JSONSchemaProps) bool {
	if schemaProps == nil {
		return false
	}
	if len(schemaProps.XValidations) > 0 {
		return true
	}
	if schemaProps.Items != nil && hasRules(schemaProps.Items.Schema) || schemaProps.AdditionalProperties != nil && hasRules(schemaProps.AdditionalProperties.Schema) {
		return true
	}
	if len(schemaProps.Properties) == 0 {
		return false
	}
	var p v1.JSONSchemaProps // reused, because schemas are large
	for _, p = range schemaProps.Properties {
		if hasRules(&p) {
			return true
		}
	}
	return false
}

// schemaCheck checks the rules of one schema and sums their estimated cost. invalidPaths holds the
// paths of other errors of the schema.
type schemaCheck struct {
	session        *session
	invalidPaths   []string
	allowExpensive bool
	errs           field.ErrorList
	totalCost      uint64
	mostExpensive  []ruleCost
}

// ruleCost is the estimated cost of a rule.
type ruleCost struct {
	path *field.Path
	cost uint64
}

// position is the context of a schema.
type position struct {
	root bool
	// maxInstances is the maximum number of values of the schema in one resource, nil if unbounded.
	maxInstances *uint64
	// uncorrelatable is the path of the enclosing list schema whose items cannot be matched with
	// old items, or nil.
	uncorrelatable *field.Path
}

// child returns the position of a schema directly within the schema s, whose position is p.
func (p *position) child(s *v1.JSONSchemaProps) *position {
	sub := &position{uncorrelatable: p.uncorrelatable}
	if elements := maxElements(s); p.maxInstances != nil && elements != nil {
		maxInstances := product(*p.maxInstances, *elements)
		sub.maxInstances = &maxInstances
	}
	return sub
}

// maxElements returns the maximum number of elements of a schema's value, or nil if unbounded.
func maxElements(schemaProps *v1.JSONSchemaProps) *uint64 {
	limit := func(n *int64) *uint64 {
		if n == nil {
			return nil
		}
		u := uint64(atLeastZero(*n))
		return &u
	}
	switch {
	case schemaProps.Type == "object" && schemaProps.AdditionalProperties != nil:
		return limit(schemaProps.MaxProperties)
	case schemaProps.Type == "array":
		return limit(schemaProps.MaxItems)
	}
	single := uint64(1)
	return &single
}

// product multiplies two numbers. It returns math.MaxUint64 on overflow.
func product(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}

func (c *schemaCheck) add(e *field.Error) { c.errs = append(c.errs, e) }

// checkNode checks the rules of a schema and of those below it. self is the type of its values if
// it is known. Each type is built once, together with the types below it.
func (c *schemaCheck) checkNode(path *field.Path, schemaProps *v1.JSONSchemaProps, self *decl, pos *position) {
	root := pos.root || schemaProps.XEmbeddedResource
	if self == nil && len(schemaProps.XValidations) > 0 {
		self = declare(schemaProps, root)
	}
	if a := schemaProps.AdditionalProperties; a != nil && a.Schema != nil {
		c.checkNode(path.Child("additionalProperties"), a.Schema, self.element(schemaProps), pos.child(schemaProps))
	}
	for _, name := range slices.Sorted(maps.Keys(schemaProps.Properties)) {
		p := schemaProps.Properties[name]
		c.checkNode(path.Child("properties").Key(name), &p, self.property(name, root), pos.child(schemaProps))
	}
	if schemaProps.Items != nil && schemaProps.Items.Schema != nil {
		sub := pos.child(schemaProps)
		if sub.uncorrelatable == nil && (schemaProps.XListType == nil || *schemaProps.XListType != "map") {
			sub.uncorrelatable = path
		}
		c.checkNode(path.Child("items"), schemaProps.Items.Schema, self.element(schemaProps), sub)
	}
	if len(schemaProps.XValidations) > 0 && !c.hasErrorIn(path) {
		c.checkRules(path.Child("x-kubernetes-validations"), schemaProps, self, pos)
	}
}

// hasErrorIn reports whether there is an error at or below a path.
func (c *schemaCheck) hasErrorIn(at *field.Path) bool {
	if len(c.invalidPaths) == 0 {
		return false
	}
	prefix := at.String()
	return slices.ContainsFunc(c.invalidPaths, func(invalid string) bool {
		suffix, ok := strings.CutPrefix(invalid, prefix)
		return ok && (suffix == "" || suffix[0] == '.' || suffix[0] == '[')
	})
}

// checkRules checks the rules of one schema.
func (c *schemaCheck) checkRules(path *field.Path, schemaProps *v1.JSONSchemaProps, self *decl, pos *position) {
	if self == nil {
		c.add(field.InternalError(
			path,
			fmt.Errorf("internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"),
		))
		return
	}
	maxInstances := pos.maxInstances
	if maxInstances == nil {
		maximum := uint64(requestSize / (self.minBytes + 1))
		maxInstances = &maximum
	}
	sc := &scope{c.session, self}
	for i := range schemaProps.XValidations {
		c.checkRule(path.Index(i), sc, &schemaProps.XValidations[i], *maxInstances, pos.uncorrelatable)
	}
}

// checkRule checks one rule and reports its errors in Kubernetes' order.
func (c *schemaCheck) checkRule(
	path *field.Path,
	ruleScope *scope,
	validationRule *v1.ValidationRule,
	maxInstances uint64,
	uncorrelatable *field.Path,
) {
	optional := validationRule.OptionalOldSelf != nil && *validationRule.OptionalOldSelf

	// 1. Type-check the rule, and limit its cost.
	var cost uint64
	rule, failure := ruleScope.typeCheck(validationRule.Rule, optional, cel.BoolType, "")
	if failure == "" {
		cost, failure = c.estimateCost(ruleScope, rule)
	}
	cost = product(cost, maxInstances)
	if cost > maxRuleCost && !c.allowExpensive {
		c.add(field.Forbidden(path.Child("rule"), exceedsBudget("estimated rule cost", cost, maxRuleCost)))
	}
	c.addCost(path.Child("rule"), cost)

	// 2. Report its failure, or check its message.
	if failure != "" {
		c.add(field.Invalid(path.Child("rule"), quotedRule{validationRule}, string(failure)))
	} else if validationRule.MessageExpression != "" {
		c.checkMessageExpression(path.Child("messageExpression"), ruleScope, validationRule, optional)
	}

	// 3. Check the use of oldSelf.
	switch {
	case rule != nil && rule.usesOldSelf:
		if uncorrelatable != nil {
			c.add(field.Invalid(path.Child("rule"), validationRule.Rule,
				fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", uncorrelatable)))
		}
	case validationRule.OptionalOldSelf != nil:
		c.add(field.Invalid(path.Child("optionalOldSelf"), *validationRule.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
	}
}

// estimateCost returns the estimated cost of an expression.
func (c *schemaCheck) estimateCost(sc *scope, expr *checkedExpr) (uint64, problem) {
	cost, err := sc.cost(expr)
	if err != nil {
		return 0, problem("cost estimation failed: " + err.Error())
	}
	return cost, ""
}

// checkMessageExpression checks the messageExpression of a rule.
func (c *schemaCheck) checkMessageExpression(path *field.Path, ruleScope *scope, rule *v1.ValidationRule, optional bool) {
	checked, failure := ruleScope.typeCheck(rule.MessageExpression, optional, cel.StringType, "messageExpression ")
	var cost uint64
	if failure == "" {
		cost, failure = c.estimateCost(ruleScope, checked)
	}
	if failure != "" {
		c.add(field.Invalid(path, quotedRule{rule}, string(failure)))
		return
	}
	if cost > maxRuleCost && !c.allowExpensive {
		c.add(field.Forbidden(path, exceedsBudget("estimated messageExpression cost", cost, maxRuleCost)))
	}
	c.addCost(path, cost)
}

// addCost adds a cost to the sum. If the cost is at least 1 % of the limit of the schema, addCost
// also considers the rule for the most expensive ones.
func (c *schemaCheck) addCost(path *field.Path, cost uint64) {
	if c.totalCost > math.MaxUint64-cost {
		c.totalCost = math.MaxUint64
	} else {
		c.totalCost += cost
	}
	if isMinor := cost < maxSchemaCost/100; isMinor {
		return
	}
	c.mostExpensive = append(c.mostExpensive, ruleCost{path: path, cost: cost})
	slices.SortStableFunc(c.mostExpensive, func(a, b ruleCost) int {
		switch {
		case a.cost > b.cost:
			return -1
		case a.cost < b.cost:
			return 1
		}
		return 0
	})
	if len(c.mostExpensive) > maxReportedRules {
		c.mostExpensive = c.mostExpensive[:maxReportedRules]
	}
}

// checkTotal returns errors if all rules together cost too much. They name the most expensive
// rules.
func (c *schemaCheck) checkTotal(path *field.Path) field.ErrorList {
	if c.totalCost <= maxSchemaCost {
		return nil
	}
	var errs field.ErrorList
	for _, rule := range c.mostExpensive {
		errs = append(errs,
			field.Forbidden(rule.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
	}
	return append(
		errs,
		field.Forbidden(path,
			exceedsBudget("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", c.totalCost, maxSchemaCost)),
	)
}

// exceedsBudget returns the message for a cost that exceeds its limit.
func exceedsBudget(name string, cost, limit uint64) string {
	ratio := float64(cost) / float64(limit)
	factor := fmt.Sprintf("%.1fx", ratio)
	switch {
	case ratio > 100:
		factor = "more than 100x"
	case ratio < 1.5:
		factor = fmt.Sprintf("%fx", ratio)
	}
	return name + " exceeds budget by factor of " + factor +
		" (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
}

// quotedRule formats a rule like Kubernetes' messages.
type quotedRule struct{ rule *v1.ValidationRule }

// String implements fmt.Stringer.
func (q quotedRule) String() string {
	rule := q.rule
	reason := "(*apiextensions.FieldValueErrorReason)(nil)"
	optional := "(*bool)(nil)"
	if rule.Reason != nil {
		reason = fmt.Sprintf("(*apiextensions.FieldValueErrorReason)(%q)", string(*rule.Reason))
	}
	if rule.OptionalOldSelf != nil {
		optional = fmt.Sprintf("(*bool)(%t)", *rule.OptionalOldSelf)
	}
	return fmt.Sprintf(
		"apiextensions.ValidationRule{Rule:%q, Message:%q, MessageExpression:%q, Reason:%s, FieldPath:%q, OptionalOldSelf:%s}",
		rule.Rule, rule.Message, rule.MessageExpression, reason, rule.FieldPath, optional)
}
