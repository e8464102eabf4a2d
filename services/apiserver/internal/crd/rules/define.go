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
	// Found holds other errors of the schema. Rules at or above the place of such an error are not
	// compiled.
	Found field.ErrorList
	// AllowCost lets single rules exceed the cost limit, because the definition had such rules
	// before the update.
	AllowCost bool
}

// CheckSchema compiles the rules and their messages. It returns errors for rules that do not
// compile, that cost too much, or that refer to an old value that cannot be known. They follow all
// other errors of the schema.
func (c *Compiler) CheckSchema(d SchemaCheck) field.ErrorList { return c.Checks()(d) }

// Checks returns CheckSchema for the schemas of one definition, one after the other. Equal
// expressions are compiled once.
func (c *Compiler) Checks() func(SchemaCheck) field.ErrorList { return c.session().checkSchema }

// checkSchema implements CheckSchema.
func (s *session) checkSchema(d SchemaCheck) field.ErrorList {
	if d.Schema == nil || !hasRules(d.Schema) {
		return nil
	}
	broken := make([]string, len(d.Found))
	for i, e := range d.Found {
		broken[i] = e.Field
	}
	k := schemaCheck{session: s, broken: broken, allowCost: d.AllowCost}
	once := uint64(1)
	k.checkNode(d.Path, d.Schema, nil, &position{root: true, times: &once})
	return append(k.errs, k.checkTotal(d.Path)...)
}

// hasRules reports whether a schema or one below it has rules.
func hasRules(s *v1.JSONSchemaProps) bool {
	if s == nil {
		return false
	}
	if len(s.XValidations) > 0 {
		return true
	}
	if s.Items != nil && hasRules(s.Items.Schema) || s.AdditionalProperties != nil && hasRules(s.AdditionalProperties.Schema) {
		return true
	}
	if len(s.Properties) == 0 {
		return false
	}
	var p v1.JSONSchemaProps // reused, because schemas are large
	for _, p = range s.Properties {
		if hasRules(&p) {
			return true
		}
	}
	return false
}

// schemaCheck checks the rules of one schema and sums their estimated cost. broken holds the paths
// of other errors of the schema.
type schemaCheck struct {
	session       *session
	broken        []string
	allowCost     bool
	errs          field.ErrorList
	totalCost     uint64
	mostExpensive []ruleCost
}

// ruleCost is the estimated cost of a rule.
type ruleCost struct {
	at   *field.Path
	cost uint64
}

// position is the context of a schema.
type position struct {
	root bool
	// times is the maximum number of values of the schema in one resource, nil if unbounded.
	times *uint64
	// uncorrelatable is the enclosing schema whose items have no known old values, or nil.
	uncorrelatable *field.Path
}

// below returns the position of a schema within s, which is at p.
func (p *position) below(s *v1.JSONSchemaProps) *position {
	sub := &position{uncorrelatable: p.uncorrelatable}
	if each := elements(s); p.times != nil && each != nil {
		times := product(*p.times, *each)
		sub.times = &times
	}
	return sub
}

// elements returns the maximum number of elements of a schema's value, or nil if unbounded.
func elements(s *v1.JSONSchemaProps) *uint64 {
	limit := func(n *int64) *uint64 {
		if n == nil {
			return nil
		}
		u := uint64(atLeastZero(*n))
		return &u
	}
	switch {
	case s.Type == "object" && s.AdditionalProperties != nil:
		return limit(s.MaxProperties)
	case s.Type == "array":
		return limit(s.MaxItems)
	}
	one := uint64(1)
	return &one
}

// product multiplies and saturates on overflow.
func product(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}

func (k *schemaCheck) add(e *field.Error) { k.errs = append(k.errs, e) }

// checkNode checks the rules of a schema and of those below it. self is the type of its values if
// it is known. Each type is built once, together with the types below it.
func (k *schemaCheck) checkNode(at *field.Path, s *v1.JSONSchemaProps, self *decl, where *position) {
	root := where.root || s.XEmbeddedResource
	if self == nil && len(s.XValidations) > 0 {
		self = declare(s, root)
	}
	if a := s.AdditionalProperties; a != nil && a.Schema != nil {
		k.checkNode(at.Child("additionalProperties"), a.Schema, self.each(s), where.below(s))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		k.checkNode(at.Child("properties").Key(name), &p, self.property(name, root), where.below(s))
	}
	if s.Items != nil && s.Items.Schema != nil {
		sub := where.below(s)
		if sub.uncorrelatable == nil && (s.XListType == nil || *s.XListType != "map") {
			sub.uncorrelatable = at
		}
		k.checkNode(at.Child("items"), s.Items.Schema, self.each(s), sub)
	}
	if len(s.XValidations) > 0 && !k.isBroken(at) {
		k.rules(at.Child("x-kubernetes-validations"), s, self, where)
	}
}

// isBroken reports whether there is an error at or below a path.
func (k *schemaCheck) isBroken(at *field.Path) bool {
	if len(k.broken) == 0 {
		return false
	}
	path := at.String()
	return slices.ContainsFunc(k.broken, func(b string) bool {
		rest, ok := strings.CutPrefix(b, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// rules checks the rules of one schema.
func (k *schemaCheck) rules(at *field.Path, s *v1.JSONSchemaProps, self *decl, where *position) {
	if self == nil {
		k.add(field.InternalError(at, fmt.Errorf("internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations")))
		return
	}
	times := where.times
	if times == nil {
		most := uint64(requestSize / (self.min + 1))
		times = &most
	}
	sc := &scope{k.session, self}
	for i := range s.XValidations {
		k.rule(at.Index(i), sc, &s.XValidations[i], *times, where.uncorrelatable)
	}
}

// rule checks one rule and reports its errors in Kubernetes' order.
func (k *schemaCheck) rule(at *field.Path, sc *scope, r *v1.ValidationRule, times uint64, unrelated *field.Path) {
	optional := r.OptionalOldSelf != nil && *r.OptionalOldSelf
	var cost uint64
	rule, wrong := sc.check(r.Rule, optional, cel.BoolType, "")
	if wrong == "" {
		cost, wrong = k.cost(sc, rule)
	}
	cost = product(cost, times)
	if cost > maxRuleCost && !k.allowCost {
		k.add(field.Forbidden(at.Child("rule"), exceedsBudget("estimated rule cost", cost, maxRuleCost)))
	}
	k.addCost(at.Child("rule"), cost)
	if wrong != "" {
		k.add(field.Invalid(at.Child("rule"), ruleText{r}, string(wrong)))
	} else if r.MessageExpression != "" {
		k.message(at.Child("messageExpression"), sc, r, optional)
	}
	switch {
	case rule != nil && rule.usesOldSelf:
		if unrelated != nil {
			k.add(field.Invalid(at.Child("rule"), r.Rule, fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", unrelated)))
		}
	case r.OptionalOldSelf != nil:
		k.add(field.Invalid(at.Child("optionalOldSelf"), *r.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
	}
}

// cost returns the estimated cost of an expression.
func (k *schemaCheck) cost(sc *scope, c *checked) (uint64, problem) {
	cost, err := sc.cost(c)
	if err != nil {
		return 0, problem("cost estimation failed: " + err.Error())
	}
	return cost, ""
}

// message checks the messageExpression of a rule.
func (k *schemaCheck) message(at *field.Path, sc *scope, r *v1.ValidationRule, optional bool) {
	c, wrong := sc.check(r.MessageExpression, optional, cel.StringType, "messageExpression ")
	var cost uint64
	if wrong == "" {
		cost, wrong = k.cost(sc, c)
	}
	if wrong != "" {
		k.add(field.Invalid(at, ruleText{r}, string(wrong)))
		return
	}
	if cost > maxRuleCost && !k.allowCost {
		k.add(field.Forbidden(at, exceedsBudget("estimated messageExpression cost", cost, maxRuleCost)))
	}
	k.addCost(at, cost)
}

// addCost adds a cost to the sum and records the most expensive rules.
func (k *schemaCheck) addCost(at *field.Path, cost uint64) {
	if k.totalCost > math.MaxUint64-cost {
		k.totalCost = math.MaxUint64
	} else {
		k.totalCost += cost
	}
	if cost < maxSchemaCost/100 {
		return
	}
	k.mostExpensive = append(k.mostExpensive, ruleCost{at: at, cost: cost})
	slices.SortStableFunc(k.mostExpensive, func(a, b ruleCost) int {
		switch {
		case a.cost > b.cost:
			return -1
		case a.cost < b.cost:
			return 1
		}
		return 0
	})
	if len(k.mostExpensive) > maxReportedRules {
		k.mostExpensive = k.mostExpensive[:maxReportedRules]
	}
}

// checkTotal returns errors if all rules together cost too much. They name the most expensive
// rules.
func (k *schemaCheck) checkTotal(at *field.Path) field.ErrorList {
	if k.totalCost <= maxSchemaCost {
		return nil
	}
	var errs field.ErrorList
	for _, d := range k.mostExpensive {
		errs = append(errs, field.Forbidden(d.at, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
	}
	return append(errs, field.Forbidden(at, exceedsBudget("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", k.totalCost, maxSchemaCost)))
}

// exceedsBudget returns the message for a cost that exceeds its limit.
func exceedsBudget(what string, cost, limit uint64) string {
	times := float64(cost) / float64(limit)
	factor := fmt.Sprintf("%.1fx", times)
	switch {
	case times > 100:
		factor = "more than 100x"
	case times < 1.5:
		factor = fmt.Sprintf("%fx", times)
	}
	return what + " exceeds budget by factor of " + factor +
		" (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
}

// ruleText formats a rule like Kubernetes' messages.
type ruleText struct{ rule *v1.ValidationRule }

// String implements fmt.Stringer.
func (t ruleText) String() string {
	r := t.rule
	reason := "(*apiextensions.FieldValueErrorReason)(nil)"
	optional := "(*bool)(nil)"
	if r.Reason != nil {
		reason = fmt.Sprintf("(*apiextensions.FieldValueErrorReason)(%q)", string(*r.Reason))
	}
	if r.OptionalOldSelf != nil {
		optional = fmt.Sprintf("(*bool)(%t)", *r.OptionalOldSelf)
	}
	return fmt.Sprintf("apiextensions.ValidationRule{Rule:%q, Message:%q, MessageExpression:%q, Reason:%s, FieldPath:%q, OptionalOldSelf:%s}",
		r.Rule, r.Message, r.MessageExpression, reason, r.FieldPath, optional)
}
