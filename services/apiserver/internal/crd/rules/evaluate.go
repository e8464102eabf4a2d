package rules

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// budgetSpent is a budget that ends the evaluation.
const budgetSpent = -1

// Evaluate checks a resource against the rules. old is the resource before an update, or nil on a
// create. warn receives errors that are tolerated because the value has not changed. costly is
// called, possibly in the middle of a rule, once the rules have cost a lot. Either may be nil. All
// rules together may cost schema.RulesBudget, each of them celenv.PerCallLimit. Documents must be
// clean.
func (r *Rules) Evaluate(ctx context.Context, doc, old *tape.Doc, warn func(string), costly func()) field.ErrorList {
	if r == nil {
		return nil
	}
	defer r.metrics.observeEvaluation(time.Now())
	if costly != nil {
		ctx = celenv.NewCostSum(costlyFrom, costly).NewContext(ctx)
	}
	evaluator := evaluation{ctx: ctx, doc: doc, old: old, warn: warn, budget: schema.RulesBudget, ratchets: r.ratchets}
	oldValue := tape.None
	var correlated *pair
	if old != nil {
		oldValue = tape.Root
		if r.program != nil {
			evaluator.comparer = r.program.NewComparer(doc, old)
			if r.ratchets {
				correlated = &pair{node: schema.Root, value: tape.Root, old: tape.Root}
			}
		}
	}
	evaluator.evaluate(r.root, nil, tape.Root, oldValue, ratchet{self: correlated})
	return evaluator.errs
}

// CheckDefault implements schema.RulesOfDefault.
func (c *Compiler) CheckDefault(
	ctx context.Context,
	path *field.Path,
	props *v1.JSONSchemaProps,
	root bool,
	value []byte,
	budget int64,
) (field.ErrorList, int64) {
	if !hasRules(props) {
		return nil, budget
	}
	self := declare(props, root)
	top := c.newSession().compileSchema(props, shapeOf(props, root), self, nil, schema.NoNode)
	if top == nil {
		return nil, budget
	}
	doc, err := tape.Parse(value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, "", err.Error())}, budget
	}
	defer doc.Release()
	// The value must be valid both as an unchanged value and as a new one.
	asUnchanged := evaluation{ctx: ctx, doc: doc, old: doc, budget: budget, ratchets: !c.NoRatcheting}
	asUnchanged.evaluate(top, path, tape.Root, tape.Root, ratchet{})
	if len(asUnchanged.errs) > 0 || c.NoRatcheting {
		return asUnchanged.errs, asUnchanged.budget
	}
	asNew := evaluation{ctx: ctx, doc: doc, budget: budget, ratchets: true}
	asNew.evaluate(top, path, tape.Root, tape.None, ratchet{})
	return asNew.errs, min(asUnchanged.budget, asNew.budget)
}

// evaluation is one evaluation of all rules.
type evaluation struct {
	ctx      context.Context
	doc, old *tape.Doc
	comparer *schema.Comparer
	warn     func(string)
	budget   int64 // remaining cost; negative once it is exhausted
	errs     field.ErrorList
	ratchets bool // tolerate errors of unchanged values
}

// pair is a value and the old value with which ratcheting compares it, and their schema.
type pair struct {
	node       schema.NodeIndex
	value, old tape.Ref
}

// ratchet holds the pair of a value, nil if it has no old value, and that of the nearest enclosing
// value that has one.
type ratchet struct{ self, enclosing *pair }

// memberRatchet returns the ratchet of the member with a key. node is the schema of the member.
func (e *evaluation) memberRatchet(ratcheting ratchet, key tape.Ref, node schema.NodeIndex) ratchet {
	if ratcheting.self == nil {
		return ratcheting
	}
	if ratcheting.enclosing == nil && (e.doc.IsText(key, "apiVersion") || e.doc.IsText(key, "kind")) {
		// The server gives the old resource the type of the new one, so there is nothing to compare.
		return ratchet{}
	}
	sub := ratchet{enclosing: ratcheting.self}
	if node != schema.NoNode && e.old.Kind(ratcheting.self.old) == tape.Object {
		if old := e.old.Find(ratcheting.self.old, e.doc.String(key)); old != tape.None {
			sub.self = &pair{node: node, value: key + 1, old: old}
		}
	}
	return sub
}

// itemRatchet returns the ratchet of an item. rules and ratcheting are those of the array. Only an item of a
// keyed list can have an old value.
func (e *evaluation) itemRatchet(rules *schemaRules, ratcheting ratchet, item tape.Ref) ratchet {
	if ratcheting.self == nil {
		return ratcheting
	}
	sub := ratchet{enclosing: ratcheting.self}
	if rules.items.node != schema.NoNode {
		if old := e.comparer.Keyed(rules.node, ratcheting.self.old, item); old != tape.None {
			sub.self = &pair{node: rules.items.node, value: item, old: old}
		}
	}
	return sub
}

// unchanged reports whether a value is unchanged. If it has no old value, the nearest enclosing
// value that has one decides.
func (e *evaluation) unchanged(ratcheting ratchet) bool {
	compared := ratcheting.self
	if compared == nil {
		compared = ratcheting.enclosing
	}
	return compared != nil && e.comparer.Equal(compared.node, compared.value, compared.old)
}

// evaluate evaluates the rules of a value and of the values within it. oldValue is oldSelf, or
// tape.None.
func (e *evaluation) evaluate(rules *schemaRules, path *field.Path, value, oldValue tape.Ref, ratcheting ratchet) {
	if e.doc.Kind(value) == tape.Null {
		return
	}
	e.evaluateRules(rules, path, value, oldValue, ratcheting)
	if e.budget < 0 {
		return
	}
	switch e.doc.Kind(value) {
	case tape.Array:
		if rules.items != nil {
			e.evaluateItems(rules, path, value, oldValue, ratcheting)
		}
	case tape.Object:
		if rules.additional != nil {
			e.evaluateMembers(rules, path, value, oldValue, ratcheting, mapValues)
		}
		if len(rules.properties) > 0 && e.budget >= 0 {
			e.evaluateMembers(rules, path, value, oldValue, ratcheting, properties)
		}
	}
}

// evaluateItems evaluates the rules of the items of an array.
func (e *evaluation) evaluateItems(rules *schemaRules, path *field.Path, value, oldValue tape.Ref, ratcheting ratchet) {
	d := e.doc
	index := 0
	for item, end := d.First(value), d.Next(value); item < end; item = d.Next(item) {
		oldItem := tape.None
		if oldValue != tape.None && e.comparer != nil {
			oldItem = e.comparer.Keyed(rules.node, oldValue, item)
		} else if oldValue != tape.None && rules.shape.listType == keyedList {
			oldItem = oldValue + (item - value) // a default is compared with itself
		}
		e.evaluate(rules.items, path.Index(index), item, oldItem, e.itemRatchet(rules, ratcheting, item))
		if e.budget < 0 {
			return
		}
		index++
	}
}

// The members of an object that evaluateMembers visits.
const (
	mapValues  = true  // values of a map (additionalProperties)
	properties = false // properties that the schema names
)

// evaluateMembers evaluates the members of an object that have rules.
func (e *evaluation) evaluateMembers(rules *schemaRules, parent *field.Path, value, oldValue tape.Ref, ratcheting ratchet, isMap bool) {
	d := e.doc
	for key, end := d.First(value), d.Next(value); key < end; key = d.Next(key + 1) {
		name := d.String(key)
		memberRules := rules.additional
		if !isMap {
			memberRules = rules.properties[name]
		}
		if memberRules == nil {
			continue
		}
		var path *field.Path
		if isMap {
			path = parent.Key(strings.Clone(name))
		} else {
			path = parent.Child(strings.Clone(name))
		}
		oldItem := tape.None
		if oldValue != tape.None && e.old.Kind(oldValue) == tape.Object {
			oldItem = e.old.Find(oldValue, name)
		}
		e.evaluate(memberRules, path, key+1, oldItem, e.memberRatchet(ratcheting, key, memberRules.node))
		if e.budget < 0 {
			return
		}
	}
}

// variables implements interpreter.Activation.
type variables struct {
	self, old ref.Val
}

// ResolveName implements interpreter.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case selfName:
		return v.self, true
	case oldSelfName:
		return v.old, v.old != nil
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (v *variables) Parent() interpreter.Activation { return nil }

// add records an error.
func (e *evaluation) add(err *field.Error) { e.errs = append(e.errs, err) }

// evaluateRules evaluates the rules of one schema on a value.
func (e *evaluation) evaluateRules(rules *schemaRules, path *field.Path, value, oldValue tape.Ref, ratcheting ratchet) {
	if rules.untyped {
		e.add(field.Invalid(path, rules.shape.typeName,
			"rule compiler initialization error: failed to convert to declType for CEL validation rules"))
		return
	}
	if len(rules.rules) == 0 {
		return
	}
	if e.budget <= 0 {
		e.addOutOfBudget(rules, path)
		return
	}
	// Rules with optionalOldSelf see oldSelf as an optional value.
	direct := &variables{self: celValue(rules.shape, e.doc, value)}
	optional := direct
	if rules.usesOld {
		optional = &variables{self: direct.self, old: types.OptionalNone}
		if oldValue != tape.None && e.old.Kind(oldValue) != tape.Null {
			direct.old = celValue(rules.shape, e.old, oldValue)
			optional.old = types.OptionalOf(direct.old)
		}
	}
	for i := range rules.rules {
		rule := &rules.rules[i]
		if rule.err != nil {
			e.add(field.Invalid(path, rules.shape.typeName, fmt.Sprintf("rule compile error: %v", rule.err)))
			continue
		}
		acceptsNoOldValue := rule.optional && e.ratchets
		if rule.usesOld() && direct.old == nil && !acceptsNoOldValue {
			continue // a transition rule needs an old value
		}
		vars := direct
		if rule.optional {
			vars = optional
		}
		if !e.evaluateRule(rules, rule, path, vars, ratcheting) {
			return
		}
	}
}

// addOutOfBudget adds an error for the exhausted budget, and ends the evaluation.
func (e *evaluation) addOutOfBudget(rules *schemaRules, path *field.Path) {
	e.add(field.Invalid(path, rules.shape.typeName,
		"validation failed due to running out of cost budget, no further validation rules will be run"))
	e.budget = budgetSpent
}

// evaluateRule evaluates one rule and reports whether to continue.
func (e *evaluation) evaluateRule(rules *schemaRules, rule *rule, path *field.Path, vars *variables, ratcheting ratchet) bool {
	result, cost, err := rule.condition.runner.Run(e.ctx, vars)
	if cost > math.MaxInt64 || int64(cost) > e.budget {
		e.addOutOfBudget(rules, path)
		return false
	}
	e.budget -= int64(cost)
	if err != nil {
		return e.addEvaluationError(rules, rule, path, err)
	}
	if result == types.True {
		return true
	}
	message := rule.fixedMessage
	if rule.message != nil {
		text, ok, detail := e.evaluateMessage(rule, vars)
		if detail != "" {
			e.report(rule, field.Invalid(failurePath(path, rule), rules.shape.typeName, detail), ratcheting)
			return false
		}
		if ok {
			message = text
		}
	}
	e.report(rule, rule.failure(failurePath(path, rule), rules.shape.typeName, message), ratcheting)
	return true
}

// costlyFrom is the cost from which the rules of one evaluation count as costly: about two
// milliseconds.
const costlyFrom = 20_000

// failurePath returns the path of a rule's errors: the value, or its field that the rule names.
func failurePath(path *field.Path, r *rule) *field.Path {
	if r.fieldPath != "" {
		return path.Child(r.fieldPath)
	}
	return path
}

// report adds an error, or a warning if the error is tolerated.
func (e *evaluation) report(rule *rule, err *field.Error, r ratchet) {
	if !rule.usesOld() && e.comparer != nil && e.unchanged(r) {
		if e.warn != nil {
			e.warn(err.Error())
		}
		return
	}
	e.add(err)
}

// costLimitExceeded is the start of the error of an expression that exceeds celenv.PerCallLimit.
const costLimitExceeded = "operation cancelled: actual cost limit exceeded"

// addEvaluationError reports a rule that failed to evaluate. It returns whether to continue.
func (e *evaluation) addEvaluationError(rules *schemaRules, rule *rule, path *field.Path, err error) bool {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "no such overload"):
		e.add(field.Invalid(
			path,
			rules.shape.typeName,
			fmt.Sprintf("'%v': call arguments did not match a supported operator, function or macro signature for rule: %v",
				err, rule.description),
		))
	case strings.HasPrefix(text, costLimitExceeded):
		e.add(field.Invalid(
			path,
			rules.shape.typeName,
			fmt.Sprintf("'%v': no further validation rules will be run due to call cost exceeds limit for rule: %v",
				err, rule.description),
		))
		e.budget = budgetSpent
		return false
	default:
		e.add(field.Invalid(path, rules.shape.typeName, fmt.Sprintf("%v evaluating rule: %v", err, rule.description)))
	}
	return true
}
