package schema

import (
	"fmt"
	"unicode/utf8"

	"github.com/go-openapi/swag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// typeOf returns the type of a value and its name in schemas.
func typeOf(doc *tape.Doc, value tape.Ref, kind tape.Kind) (typeSet, string) {
	switch kind {
	case tape.Object:
		return typeObject, "object"
	case tape.Array:
		return typeArray, "array"
	case tape.String:
		return typeString, "string"
	case tape.Number:
		if _, ok := doc.Int(value); ok {
			return typeInteger, "integer"
		}
		return typeNumber, "number"
	}
	return typeBoolean, "boolean"
}

// checkType checks the type, and the format where it denotes a type. A string or array always
// passes if the schema has a format and is not numeric.
func (c *checker) checkType(schemaNode *node, value tape.Ref, kind tape.Kind) bool {
	actual, name := typeOf(c.doc, value, kind)
	isNumeric := schemaNode.types&(typeNumber|typeInteger) != 0
	isIntegerForNumber := actual == typeInteger && schemaNode.types&typeNumber != 0
	isWholeForInteger := actual == typeNumber && schemaNode.types&typeInteger != 0 && swag.IsFloat64AJSONInteger(c.doc.Float(value))
	matches := schemaNode.types&actual != 0 || isIntegerForNumber || isWholeForInteger
	if schemaNode.text != nil && schemaNode.text.format != "" {
		if kind == tape.String || kind == tape.Array {
			if !isNumeric {
				return true
			}
		} else if format := formatOf(actual); !matches && schemaNode.text.format != format {
			c.reportWrongType(schemaNode.text.format, format)
			return false
		}
	}
	if !matches {
		c.reportWrongType(schemaNode.typeText, name)
	}
	return matches
}

// formatOf returns the format of the Go type for a JSON type.
func formatOf(jsonType typeSet) string {
	switch jsonType {
	case typeInteger:
		return "int64"
	case typeNumber:
		return "float64"
	}
	return ""
}

// checkText checks a string and returns the number of checks beyond the first.
func (c *checker) checkText(n *node, value tape.Ref) int {
	textRule := n.text
	if textRule == nil {
		return 0
	}
	c.checkLengths(textRule, value)
	if !textRule.knownFormat {
		return 0
	}
	if text := c.doc.String(value); !hasFormat(textRule.format, text) {
		c.reportWrongType(textRule.format, text)
	}
	return 1
}

// checkLengths checks the length of a string.
func (c *checker) checkLengths(textRule *textRules, value tape.Ref) {
	if textRule.maxLength != nil || textRule.minLength != nil {
		length := int64(c.doc.Runes(value))
		if textRule.maxLength != nil && length > *textRule.maxLength {
			c.add(func(at *field.Path, name string) *field.Error { return field.TooLong(at, "", int(*textRule.maxLength)) })
			return
		}
		if textRule.minLength != nil && length < *textRule.minLength {
			c.reportInvalid(func() any { return c.doc.String(value) }, "should be at least %d chars long", *textRule.minLength)
			return
		}
	}
	if textRule.pattern == nil {
		return
	}
	text := c.doc.String(value)
	pattern := c.compiledPattern(textRule.pattern)
	switch {
	case pattern != nil && pattern.err != nil:
		c.reportInvalid(func() any { return text },
			"should match '%s'", fmt.Sprintf("%s, but pattern is invalid: %s", textRule.pattern.text, pattern.err))
	case pattern == nil || !c.spendBudget(pattern.size*(len(text)+1)):
		c.reportInvalid(func() any { return text },
			"should match '%s', which is too expensive to evaluate for all values that must match", textRule.pattern.text)
	case !pattern.re.MatchString(text):
		c.reportInvalid(func() any { return text }, "should match '%s'", textRule.pattern.text)
	}
}

// checkNumber checks the bounds of a number.
func (c *checker) checkNumber(n *node, value tape.Ref) {
	limits := n.bounds
	if limits == nil {
		return
	}
	if i, ok := c.doc.Int(value); ok {
		c.checkInt(limits, i)
		return
	}
	c.checkFloat(limits, c.doc.Float(value))
}

// checkInt checks an integer. It compares integers: the bounds lose their fractions.
func (c *checker) checkInt(limits *bounds, i int64) {
	if limits.multipleOf != nil {
		if factor := int64(*limits.multipleOf); factor <= 0 {
			c.addInvalidFactor(factor)
		} else if i%factor != 0 {
			c.reportInvalid(func() any { return i }, "should be a multiple of %v", factor)
		}
	}
	if limits.min != nil {
		if m := int64(*limits.min); i < m || limits.exclusiveMin && i == m {
			c.reportInvalid(func() any { return i }, atLeast(limits.exclusiveMin), m)
		}
	}
	if limits.max != nil {
		if m := int64(*limits.max); i > m || limits.exclusiveMax && i == m {
			c.reportInvalid(func() any { return i }, atMost(limits.exclusiveMax), m)
		}
	}
}

// checkFloat checks a number that is not an integer.
func (c *checker) checkFloat(limits *bounds, number float64) {
	if limits.multipleOf != nil {
		c.checkMultiple(*limits.multipleOf, number)
	}
	if limits.min != nil {
		if m := *limits.min; number < m || limits.exclusiveMin && number == m {
			c.reportInvalid(func() any { return number }, atLeast(limits.exclusiveMin), m)
		}
	}
	if limits.max != nil {
		if m := *limits.max; number > m || limits.exclusiveMax && number == m {
			c.reportInvalid(func() any { return number }, atMost(limits.exclusiveMax), m)
		}
	}
}

// checkMultiple checks multipleOf.
func (c *checker) checkMultiple(factor, number float64) {
	if factor <= 0 {
		c.addInvalidFactor(factor)
		return
	}
	times := number / factor
	if factor < 1 {
		times = 1 / factor * number
	}
	if !swag.IsFloat64AJSONInteger(times) {
		c.reportInvalid(func() any { return number }, "should be a multiple of %v", factor)
	}
}

// addInvalidFactor reports a multipleOf that is not positive.
func (c *checker) addInvalidFactor(factor any) {
	c.add(func(at *field.Path, name string) *field.Error {
		return field.Invalid(at, factor, fmt.Sprintf("factor MultipleOf declared for %s must be positive: %v", name, factor))
	})
}

// atLeast returns the message of a minimum.
func atLeast(exclusive bool) string {
	if exclusive {
		return "should be greater than %v"
	}
	return "should be greater than or equal to %v"
}

// atMost returns the message of a maximum.
func atMost(exclusive bool) string {
	if exclusive {
		return "should be less than %v"
	}
	return "should be less than or equal to %v"
}

// checkItems checks the number of items of an array.
func (c *checker) checkItems(limits *bounds, count int64) {
	if limits.minItems != nil && count < *limits.minItems {
		c.reportInvalid(func() any { return count }, "should have at least %d items", *limits.minItems)
	}
	if limits.maxItems != nil && count > *limits.maxItems {
		c.add(func(at *field.Path, name string) *field.Error {
			return field.TooMany(at, int(count), int(*limits.maxItems))
		})
	}
}

// checkProps checks the number of members of an object.
func (c *checker) checkProps(limits *bounds, count int64) {
	if limits.minProps != nil && count < *limits.minProps {
		c.reportInvalid(func() any { return count }, "should have at least %d properties", *limits.minProps)
	}
	if limits.maxProps != nil && count > *limits.maxProps {
		c.add(func(at *field.Path, name string) *field.Error {
			return field.TooMany(at, int(count), int(*limits.maxProps))
		})
	}
}

// checkEnum checks that a value is an allowed one.
func (c *checker) checkEnum(schemaNode *node, value tape.Ref) {
	if len(schemaNode.enum) == 0 {
		return
	}
	if c.isInEnum(schemaNode, value) {
		return
	}
	c.add(func(at *field.Path, name string) *field.Error {
		err := field.NotSupported[string](at, c.doc.Any(value), nil)
		err.Detail = c.supportedDetail(schemaNode)
		c.addCost(len(err.Detail)) // the detail is inspected again later
		return err
	})
}

// supportedDetail returns the error detail that lists the values of an enum. It caches the text
// because many values may violate the same enum.
func (c *checker) supportedDetail(schemaNode *node) string {
	if c.reportedEnum != schemaNode {
		texts := make([]string, len(schemaNode.enum))
		for i := range schemaNode.enum {
			texts[i] = schemaNode.enum[i].text
		}
		c.reportedEnum, c.enumText = schemaNode, field.NotSupported[string](nil, nil, texts).Detail
	}
	return c.enumText
}

// matchesEnumValue reports whether a value equals an enum value after conversion to the enum
// value's type: 2.5 equals 2, and 97 equals "a". A null equals nothing.
func (c *checker) matchesEnumValue(enum *enumValue, value tape.Ref) bool {
	switch expected := enum.value.(type) {
	case string:
		switch c.doc.Kind(value) {
		case tape.String:
			return c.doc.IsText(value, expected)
		case tape.Number:
			i, ok := c.doc.Int(value)
			return ok && expected == runeText(i)
		}
	case bool:
		return c.doc.Kind(value) == tape.True && expected || c.doc.Kind(value) == tape.False && !expected
	case int64:
		if c.doc.Kind(value) == tape.Number {
			i, ok := c.doc.Int(value)
			if !ok {
				i = int64(c.doc.Float(value))
			}
			return i == expected
		}
	case float64:
		return c.doc.Kind(value) == tape.Number && c.doc.Float(value) == expected
	case nil:
		return false
	default:
		return tape.Equal(c.doc, value, enum.doc, tape.Root)
	}
	return false
}

// runeText converts an integer to a string like the Go conversion string(rune(i)).
func runeText(i int64) string {
	if i < 0 || i > utf8.MaxRune {
		return string(utf8.RuneError)
	}
	return string(rune(i))
}

// minIndexedValues is the number of values from which an enum is indexed. Fewer are compared one by
// one.
const minIndexedValues = 16

// enumIndex indexes the values of a long enum.
type enumIndex struct {
	texts  map[string]struct{}
	ints   map[int64]struct{}
	floats map[float64]struct{}
	others []*enumValue
}

// newEnumIndex returns the index of an enum, or nil if it has few values.
func newEnumIndex(enum []enumValue) *enumIndex {
	if len(enum) < minIndexedValues {
		return nil
	}
	index := &enumIndex{texts: map[string]struct{}{}, ints: map[int64]struct{}{}, floats: map[float64]struct{}{}}
	for i := range enum {
		switch v := enum[i].value.(type) {
		case string:
			index.texts[v] = struct{}{}
		case int64:
			index.ints[v] = struct{}{}
		case float64:
			index.floats[v] = struct{}{}
		default:
			index.others = append(index.others, &enum[i])
		}
	}
	return index
}

// isInEnum reports whether a value is in an enum, by the conversions of matchesEnumValue.
func (c *checker) isInEnum(schemaNode *node, value tape.Ref) bool {
	index := schemaNode.enumIndex
	if index == nil {
		for i := range schemaNode.enum {
			if c.matchesEnumValue(&schemaNode.enum[i], value) {
				return true
			}
		}
		return false
	}
	switch c.doc.Kind(value) {
	case tape.String:
		if _, ok := index.texts[c.doc.String(value)]; ok {
			return true
		}
	case tape.Number:
		if c.isNumberInEnum(index, value) {
			return true
		}
	}
	c.addCost(perValue * len(index.others))
	for _, e := range index.others {
		if c.matchesEnumValue(e, value) {
			return true
		}
	}
	return false
}

// isNumberInEnum reports whether a long enum contains a number.
func (c *checker) isNumberInEnum(index *enumIndex, value tape.Ref) bool {
	number := c.doc.Float(value)
	i, isInt := c.doc.Int(value)
	if isInt {
		if _, ok := index.texts[runeText(i)]; ok {
			return true
		}
	} else {
		i = int64(number)
	}
	if _, ok := index.ints[i]; ok {
		return true
	}
	_, ok := index.floats[number]
	return ok
}
