package rules

import (
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/crd/schema"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Rules holds the rules of a resource's schema. A nil *Rules has none.
type Rules struct {
	program *schema.Program
	root    *schemaRules
	metrics *Metrics
	// ratchets is false when the compiler has NoRatcheting.
	ratchets bool
}

// schemaRules holds the rules of a schema and of those below it.
type schemaRules struct {
	rules []rule
	shape *schemaShape
	node  schema.NodeIndex
	// untyped reports that the schema has rules, but its values have no type in CEL.
	untyped bool
	// usesOld reports whether a rule of the schema refers to the old value.
	usesOld    bool
	properties map[string]*schemaRules
	items      *schemaRules
	additional *schemaRules
}

// rule is a compiled rule.
type rule struct {
	condition         *program
	message           *program // of the messageExpression, or nil
	err               error    // set if condition is nil
	optional          bool     // oldSelf is an optional value
	description       string   // identifies the rule in errors: the message, or else the rule
	fixedMessage      string   // message without a messageExpression
	reason            v1.FieldValueErrorReason
	fieldPath         string // of the field within the value
	messageExpression string // text
}

// Compile returns the rules of a schema, or nil if it has none. program is that of the same
// schema. If it is nil, errors of unchanged values are not tolerated. The returned Rules do not
// reference the schema.
func (c *Compiler) Compile(props *v1.JSONSchemaProps, program *schema.Program) *Rules {
	at := schema.Root
	if program == nil {
		at = schema.NoNode
	}
	root := c.newSession().compileSchema(props, shapeOf(props, true), declare(props, true), program, at)
	if root == nil {
		return nil
	}
	return &Rules{program: program, root: root, metrics: c.Metrics, ratchets: !c.NoRatcheting}
}

// compileSchema returns the rules of a schema and of those below it, or nil if there are none. shape
// is the shape of the schema's values. self is their type, nil if they have no type in CEL. A rule
// for such values cannot be compiled, so every value is rejected. The rules of properties without a
// type are ignored. at is the node of the schema in program. It is schema.NoNode if program is nil.
func (c *session) compileSchema(
	schemaProps *v1.JSONSchemaProps,
	shape *schemaShape,
	self *decl,
	program *schema.Program,
	at schema.NodeIndex,
) *schemaRules {
	if !hasRules(schemaProps) {
		return nil
	}
	rules := &schemaRules{shape: shape, node: at, properties: map[string]*schemaRules{}}
	// nodeBelow returns the node that next returns for at, or NoNode without a program.
	nodeBelow := func(next func(schema.NodeIndex) schema.NodeIndex) schema.NodeIndex {
		if at == schema.NoNode {
			return at
		}
		return next(at)
	}

	// 1. Compile the rules of properties, map values and items.
	for name, sub := range schemaProps.Properties {
		node := nodeBelow(func(at schema.NodeIndex) schema.NodeIndex { return program.Property(at, name) })
		declaration := c.propertyDecl(self, name, &sub)
		if declaration == nil {
			continue
		}
		if sub := c.compileSchema(&sub, shape.childShape(name, &sub), declaration, program, node); sub != nil {
			rules.properties[name] = sub
		}
	}
	var elements *decl
	if self != nil {
		elements = self.elem
	}
	if a := schemaProps.AdditionalProperties; a != nil && a.Schema != nil {
		rules.additional = c.compileSchema(a.Schema, shape.childShape("", a.Schema), elements, program, nodeBelow(program.Values))
	}
	if schemaProps.Items != nil && schemaProps.Items.Schema != nil {
		rules.items = c.compileSchema(schemaProps.Items.Schema, shape.childShape("", schemaProps.Items.Schema), elements, program, nodeBelow(program.Items))
	}

	// 2. Compile the rules of the schema itself.
	if self == nil {
		rules.untyped = len(schemaProps.XValidations) > 0
		return rules
	}
	ruleScope := &scope{c, self}
	for i := range schemaProps.XValidations {
		r := &schemaProps.XValidations[i]
		if strings.TrimSpace(r.Rule) != "" {
			rules.rules = append(rules.rules, ruleScope.compileRule(schemaProps, r))
			rules.usesOld = rules.usesOld || rules.rules[len(rules.rules)-1].usesOld()
		}
	}
	return rules
}

// propertyDecl returns the type of a property. A property whose name cannot be escaped is not a
// field in CEL, but may have rules of its own.
func (c *session) propertyDecl(self *decl, name string, props *v1.JSONSchemaProps) *decl {
	escaped, ok := celenv.Escape(name)
	if !ok {
		return declare(props, props.XEmbeddedResource)
	}
	if self == nil {
		return nil
	}
	return self.fields[escaped]
}

// compileRule compiles a rule of the schema owner.
func (s *scope) compileRule(owner *v1.JSONSchemaProps, validationRule *v1.ValidationRule) rule {
	compiled := rule{
		optional:          validationRule.OptionalOldSelf != nil && *validationRule.OptionalOldSelf,
		description:       ruleDescription(validationRule),
		fixedMessage:      fixedMessageOf(validationRule),
		messageExpression: validationRule.MessageExpression,
	}
	if validationRule.Reason != nil {
		compiled.reason = *validationRule.Reason
	}
	if validationRule.FieldPath != "" {
		if fieldPath, _, err := ValidFieldPath(validationRule.FieldPath, owner, true); err == nil {
			compiled.fieldPath = fieldPath.String()
		}
	}
	compiled.condition, compiled.err = s.compileProgram(validationRule.Rule, compiled.optional, cel.BoolType)
	if compiled.err != nil {
		return compiled
	}
	if validationRule.MessageExpression != "" {
		// An invalid messageExpression was rejected with the definition. The fixed message replaces
		// it.
		compiled.message, _ = s.compileProgram(validationRule.MessageExpression, compiled.optional, cel.StringType)
	}
	return compiled
}

func (r *rule) usesOld() bool { return r.condition != nil && r.condition.usesOldSelf }

// failure returns the error of a violated rule. path is that of failurePath.
func (r *rule) failure(path *field.Path, typeName, message string) *field.Error {
	switch r.reason {
	case v1.FieldValueForbidden:
		return field.Forbidden(path, message)
	case v1.FieldValueRequired:
		return field.Required(path, message)
	case v1.FieldValueDuplicate:
		return field.Duplicate(path, typeName)
	}
	return field.Invalid(path, typeName, message)
}

// maxMessage is the maximum length in bytes of a message from a messageExpression.
const maxMessage = 5 << 10

// evaluateMessage evaluates the messageExpression. ok reports whether there is a text. A non-empty
// detail ends the evaluation of all rules.
func (e *evaluation) evaluateMessage(rule *rule, vars *variables) (text string, ok bool, detail string) {
	result, cost, err := rule.message.runner.Run(e.ctx, vars)
	if cost > math.MaxInt64 || int64(cost) > e.budget {
		e.budget = budgetSpent
		return "", false, "messageExpression evaluation failed due to running out of cost budget, " +
			"no further validation rules will be run"
	}
	e.budget -= int64(cost)
	if err != nil {
		if strings.HasPrefix(err.Error(), costLimitExceeded) {
			e.budget = budgetSpent
			return "", false, fmt.Sprintf(
				"no further validation rules will be run due to call cost exceeds limit for messageExpression: %q",
				rule.messageExpression)
		}
		return "", false, ""
	}
	s, isText := result.(types.String)
	text = strings.TrimSpace(string(s))
	ok = isText && text != "" && len(text) <= maxMessage && !strings.Contains(text, "\n")
	return text, ok, ""
}

// ruleDescription returns the text that identifies a rule in errors.
func ruleDescription(rule *v1.ValidationRule) string {
	if rule.Message != "" {
		return strings.TrimSpace(rule.Message)
	}
	return strings.TrimSpace(rule.Rule)
}

// fixedMessageOf returns the message of a rule without a messageExpression.
func fixedMessageOf(rule *v1.ValidationRule) string {
	if rule.Message != "" {
		return strings.TrimSpace(rule.Message)
	}
	return "failed rule: " + strings.TrimSpace(rule.Rule)
}
