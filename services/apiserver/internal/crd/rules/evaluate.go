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

const (
	// maxMessage is the maximum length in bytes of a message from a messageExpression.
	maxMessage = 5 << 10
	// budgetSpent is a budget that ends the evaluation.
	budgetSpent = -1
)

// Evaluate checks a resource against the rules. old is the resource before an update, or nil on a
// create. warn receives errors that are tolerated because the value has not changed. costly is
// called, possibly in the middle of a rule, once the rules have cost a lot. Either may be nil. All
// rules together may cost schema.RulesBudget, each of them celenv.PerCallLimit. Documents must be
// clean.
func (r *Rules) Evaluate(ctx context.Context, doc, old *tape.Doc, warn func(string), costly func()) field.ErrorList {
	if r == nil {
		return nil
	}
	defer r.metrics.evaluated(time.Now())
	if costly != nil {
		ctx = celenv.NewCostSum(costlyFrom, costly).With(ctx)
	}
	e := evaluation{ctx: ctx, doc: doc, old: old, warn: warn, budget: schema.RulesBudget, ratchets: r.ratchets}
	before := tape.None
	var same *relation
	if old != nil {
		before = tape.Root
		if r.program != nil {
			e.comparer = r.program.NewComparer(doc, old)
			if r.ratchets {
				same = &relation{place: schema.Root, value: tape.Root, old: tape.Root}
			}
		}
	}
	e.level(r.top, nil, tape.Root, before, related{now: same})
	return e.errs
}

// CheckDefault is a schema.RulesOfDefault.
func (c *Compiler) CheckDefault(ctx context.Context, at *field.Path, s *v1.JSONSchemaProps, root bool, value []byte, budget int64) (field.ErrorList, int64) {
	if !hasRules(s) {
		return nil, budget
	}
	self := declare(s, root)
	top := c.session().compile(s, shapeOf(s, root), self, nil, schema.NoNode)
	if top == nil {
		return nil, budget
	}
	doc, err := tape.Parse(value)
	if err != nil {
		return field.ErrorList{field.Invalid(at, "", err.Error())}, budget
	}
	defer doc.Release()
	// The value must be valid both as an unchanged value and as a new one.
	e := evaluation{ctx: ctx, doc: doc, old: doc, budget: budget, ratchets: !c.NoRatcheting}
	e.level(top, at, tape.Root, tape.Root, related{})
	if len(e.errs) > 0 || c.NoRatcheting {
		return e.errs, e.budget
	}
	fresh := evaluation{ctx: ctx, doc: doc, budget: budget, ratchets: true}
	fresh.level(top, at, tape.Root, tape.None, related{})
	return fresh.errs, min(e.budget, fresh.budget)
}

// evaluation is one evaluation of all rules.
type evaluation struct {
	ctx      context.Context
	doc, old *tape.Doc
	comparer *schema.Comparer
	warn     func(string)
	budget   int64
	errs     field.ErrorList
	// ratchets is Rules.ratchets.
	ratchets bool
}

// relation is a pair of a value and its old value in the sense of ratcheting.
type relation struct {
	place      schema.NodeIndex
	value, old tape.Ref
}

// related is the relation of a value, or that of the nearest enclosing value that has one.
type related struct{ now, around *relation }

// key returns the relation of a member.
func (e *evaluation) key(r related, key tape.Ref, place schema.NodeIndex) related {
	if r.now == nil {
		return r
	}
	if r.around == nil && (e.doc.IsText(key, "apiVersion") || e.doc.IsText(key, "kind")) {
		return related{} // both versions of the resource have been given the same type
	}
	sub := related{around: r.now}
	if place != schema.NoNode && e.old.Kind(r.now.old) == tape.Object {
		if old := e.old.Find(r.now.old, e.doc.String(key)); old != tape.None {
			sub.now = &relation{place: place, value: key + 1, old: old}
		}
	}
	return sub
}

// unchanged reports whether errors of a value are tolerated.
func (e *evaluation) unchanged(r related) bool {
	at := r.now
	if at == nil {
		at = r.around
	}
	return at != nil && e.comparer.Equal(at.place, at.value, at.old)
}

// level evaluates the rules of a value and of the values within it. before is the old value for
// rules, or tape.None.
func (e *evaluation) level(l *level, at *field.Path, v, before tape.Ref, r related) {
	if e.doc.Kind(v) == tape.Null {
		return
	}
	e.rules(l, at, v, before, r)
	if e.budget < 0 {
		return
	}
	switch e.doc.Kind(v) {
	case tape.Array:
		if l.items != nil {
			e.array(l, at, v, before, r)
		}
	case tape.Object:
		if l.values != nil {
			e.members(l, at, v, before, r, true)
		}
		if len(l.props) > 0 && e.budget >= 0 {
			e.members(l, at, v, before, r, false)
		}
	}
}

// array evaluates the rules of the items of an array.
func (e *evaluation) array(l *level, at *field.Path, v, before tape.Ref, r related) {
	d := e.doc
	index := 0
	for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
		sub := r
		if r.now != nil {
			sub.now = nil
			sub.around = r.now
		}
		if r.now != nil && l.items.place != schema.NoNode {
			if o := e.comparer.Keyed(l.place, r.now.old, i); o != tape.None {
				sub.now = &relation{place: l.items.place, value: i, old: o}
			}
		}
		was := tape.None
		if before != tape.None && e.comparer != nil {
			was = e.comparer.Keyed(l.place, before, i)
		} else if before != tape.None && l.shape.list == keyedList {
			was = before + (i - v) // a default is compared with itself
		}
		e.level(l.items, at.Index(index), i, was, sub)
		if e.budget < 0 {
			return
		}
		index++
	}
}

// members evaluates the members of an object that have rules. values states that these are the
// values of a map; otherwise they are properties.
func (e *evaluation) members(l *level, at *field.Path, v, before tape.Ref, r related, values bool) {
	d := e.doc
	for k, end := d.First(v), d.Next(v); k < end; k = d.Next(k + 1) {
		name := d.String(k)
		below := l.values
		if !values {
			below = l.props[name]
		}
		if below == nil {
			continue
		}
		var path *field.Path
		if values {
			path = at.Key(strings.Clone(name))
		} else {
			path = at.Child(strings.Clone(name))
		}
		was := tape.None
		if before != tape.None && e.old.Kind(before) == tape.Object {
			was = e.old.Find(before, name)
		}
		e.level(below, path, k+1, was, e.key(r, k, below.place))
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

func (e *evaluation) add(err *field.Error) { e.errs = append(e.errs, err) }

// rules evaluates the rules of one schema on a value.
func (e *evaluation) rules(l *level, at *field.Path, v, before tape.Ref, r related) {
	if l.untyped {
		e.add(field.Invalid(at, l.shape.typeName, "rule compiler initialization error: failed to convert to declType for CEL validation rules"))
		return
	}
	if len(l.rules) == 0 {
		return
	}
	if e.budget <= 0 {
		e.outOfBudget(l, at)
		return
	}
	plain := &variables{self: value(l.shape, e.doc, v)}
	optional := plain
	if l.usesOld {
		optional = &variables{self: plain.self, old: types.OptionalNone}
		if before != tape.None && e.old.Kind(before) != tape.Null {
			plain.old = value(l.shape, e.old, before)
			optional.old = types.OptionalOf(plain.old)
		}
	}
	for i := range l.rules {
		rule := &l.rules[i]
		if rule.err != nil {
			e.add(field.Invalid(at, l.shape.typeName, fmt.Sprintf("rule compile error: %v", rule.err)))
			continue
		}
		if rule.usesOld() && plain.old == nil && !(rule.optional && e.ratchets) {
			continue // a transition rule needs an old value
		}
		vars := plain
		if rule.optional {
			vars = optional
		}
		if !e.rule(l, rule, at, vars, r) {
			return
		}
	}
}

// outOfBudget reports that the budget is exhausted, and ends the evaluation.
func (e *evaluation) outOfBudget(l *level, at *field.Path) {
	e.add(field.Invalid(at, l.shape.typeName, "validation failed due to running out of cost budget, no further validation rules will be run"))
	e.budget = budgetSpent
}

// rule evaluates one rule and reports whether to continue.
func (e *evaluation) rule(l *level, rule *rule, at *field.Path, vars *variables, r related) bool {
	result, cost, err := rule.check.run.Run(e.ctx, vars)
	if cost > math.MaxInt64 || int64(cost) > e.budget {
		e.outOfBudget(l, at)
		return false
	}
	e.spend(int64(cost))
	if err != nil {
		return e.evaluationFailed(l, rule, at, err)
	}
	if result == types.True {
		return true
	}
	message := rule.fixed
	if rule.message != nil {
		text, more, detail := e.message(rule, vars)
		if detail != "" {
			e.report(rule, field.Invalid(failurePath(at, rule), l.shape.typeName, detail), r)
			return false
		}
		if more {
			message = text
		}
	}
	e.report(rule, rule.failure(at, l.shape.typeName, message), r)
	return true
}

// costlyFrom is the cost from which the rules of one evaluation count as costly: about two
// milliseconds.
const costlyFrom = 20_000

// spend subtracts a cost from the budget.
func (e *evaluation) spend(cost int64) {
	e.budget -= cost
}

// failurePath returns the path of a rule's errors: the value, or its field that the rule names.
func failurePath(at *field.Path, r *rule) *field.Path {
	if r.path != "" {
		return at.Child(r.path)
	}
	return at
}

// report adds an error, or a warning if the error is tolerated.
func (e *evaluation) report(rule *rule, err *field.Error, r related) {
	if !rule.usesOld() && e.comparer != nil && e.unchanged(r) {
		if e.warn != nil {
			e.warn(err.Error())
		}
		return
	}
	e.add(err)
}

const costLimitExceeded = "operation cancelled: actual cost limit exceeded"

// evaluationFailed reports a rule that failed to evaluate. It returns whether to continue.
func (e *evaluation) evaluationFailed(l *level, rule *rule, at *field.Path, err error) bool {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "no such overload"):
		e.add(field.Invalid(at, l.shape.typeName, fmt.Sprintf("'%v': call arguments did not match a supported operator, function or macro signature for rule: %v", err, rule.text)))
	case strings.HasPrefix(text, costLimitExceeded):
		e.add(field.Invalid(at, l.shape.typeName, fmt.Sprintf("'%v': no further validation rules will be run due to call cost exceeds limit for rule: %v", err, rule.text)))
		e.budget = budgetSpent
		return false
	default:
		e.add(field.Invalid(at, l.shape.typeName, fmt.Sprintf("%v evaluating rule: %v", err, rule.text)))
	}
	return true
}

// message evaluates the messageExpression. ok reports whether there is a text. A non-empty detail
// ends the evaluation of all rules.
func (e *evaluation) message(rule *rule, vars *variables) (text string, ok bool, detail string) {
	result, cost, err := rule.message.run.Run(e.ctx, vars)
	if cost > math.MaxInt64 || int64(cost) > e.budget {
		e.budget = budgetSpent
		return "", false, "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
	}
	e.spend(int64(cost))
	if err != nil {
		if strings.HasPrefix(err.Error(), costLimitExceeded) {
			e.budget = budgetSpent
			return "", false, fmt.Sprintf("no further validation rules will be run due to call cost exceeds limit for messageExpression: %q", rule.messageText)
		}
		return "", false, ""
	}
	s, isText := result.(types.String)
	text = strings.TrimSpace(string(s))
	ok = isText && text != "" && len(text) <= maxMessage && !strings.Contains(text, "\n")
	return text, ok, ""
}

func hasText(s string) bool { return strings.TrimSpace(s) != "" }

// ruleOrMessage returns the text that identifies a rule in errors.
func ruleOrMessage(r *v1.ValidationRule) string {
	if r.Message != "" {
		return strings.TrimSpace(r.Message)
	}
	return strings.TrimSpace(r.Rule)
}

// fixedMessage returns the message of a rule without a messageExpression.
func fixedMessage(r *v1.ValidationRule) string {
	if r.Message != "" {
		return strings.TrimSpace(r.Message)
	}
	return "failed rule: " + strings.TrimSpace(r.Rule)
}
