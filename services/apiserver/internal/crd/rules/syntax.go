package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// reasons are the reasons that a rule may have.
var reasons = []v1.FieldValueErrorReason{
	v1.FieldValueDuplicate,
	v1.FieldValueForbidden,
	v1.FieldValueInvalid,
	v1.FieldValueRequired,
}

// CheckSyntax returns the errors of one schema's own rules, except for compilation errors: texts
// that are missing, blank or contain line breaks, unknown reasons, and paths that name no field.
// fieldPath is the path of props.
func CheckSyntax(fieldPath *field.Path, props *v1.JSONSchemaProps) field.ErrorList {
	var errs field.ErrorList
	for i := range props.XValidations {
		errs = append(errs, checkTexts(fieldPath.Child("x-kubernetes-validations").Index(i), props, &props.XValidations[i])...)
	}
	return errs
}

// checkTexts checks the texts of a rule.
func checkTexts(fieldPath *field.Path, schemaProps *v1.JSONSchemaProps, validationRule *v1.ValidationRule) field.ErrorList {
	var errs field.ErrorList
	rule := strings.TrimSpace(validationRule.Rule)
	message := strings.TrimSpace(validationRule.Message)
	switch {
	case rule == "":
		errs = append(errs, field.Required(fieldPath.Child("rule"), "rule is not specified"))
	case validationRule.Message != "" && message == "":
		errs = append(errs, field.Invalid(fieldPath.Child("message"), validationRule.Message, "message must be non-empty if specified"))
	case hasLineBreak(message):
		errs = append(errs, field.Invalid(fieldPath.Child("message"), validationRule.Message, "message must not contain line breaks"))
	case hasLineBreak(rule) && message == "":
		errs = append(errs, field.Required(fieldPath.Child("message"), "message must be specified if rule contains line breaks"))
	}
	if validationRule.MessageExpression != "" && strings.TrimSpace(validationRule.MessageExpression) == "" {
		errs = append(errs, field.Required(fieldPath.Child("messageExpression"), "messageExpression must be non-empty if specified"))
	}
	if validationRule.Reason != nil && !slices.Contains(reasons, *validationRule.Reason) {
		errs = append(errs, field.NotSupported(fieldPath.Child("reason"), *validationRule.Reason, reasons))
	}
	return append(errs, checkFieldPath(fieldPath.Child("fieldPath"), schemaProps, validationRule.FieldPath)...)
}

// checkFieldPath checks that a rule's fieldPath names a field of the schema.
func checkFieldPath(fieldPath *field.Path, schemaProps *v1.JSONSchemaProps, path string) field.ErrorList {
	if path == "" {
		return nil
	}
	var errs field.ErrorList
	if strings.TrimSpace(path) == "" {
		errs = append(errs, field.Invalid(fieldPath, path, "fieldPath must be non-empty if specified"))
	}
	if hasLineBreak(path) {
		errs = append(errs, field.Invalid(fieldPath, path, "fieldPath must not contain line breaks"))
	}
	// A schema with unsupported keywords is rejected for them.
	if _, _, err := ValidFieldPath(path, schemaProps, true); err != nil && structural.Unsupported(schemaProps) == nil {
		errs = append(errs, field.Invalid(fieldPath, path, "fieldPath must be a valid path"))
	}
	return errs
}

func hasLineBreak(s string) bool { return strings.ContainsAny(s, "\n\r") }

var errNoField = errors.New("does not refer to a valid field")

// ValidFieldPath resolves a path such as .spec['a'] in a schema. It returns the field path and the
// schema of the field, or an error if the path names no field. brackets allows the form with
// brackets.
func ValidFieldPath(path string, schemaProps *v1.JSONSchemaProps, brackets bool) (*field.Path, *v1.JSONSchemaProps, error) {
	var fieldPath *field.Path
	for rest := path; rest != ""; {
		var name string
		var err error
		switch rest[0] {
		case '.':
			if name, rest, err = readDotted(rest[1:]); err != nil {
				return nil, nil, err
			}
		case '[':
			if !brackets {
				return nil, nil, errors.New("array notation is not allowed")
			}
			if name, rest, err = readBracketed(rest[1:]); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, fmt.Errorf("expected [ or . but got: %s", nextWord(rest))
		}
		if fieldPath, schemaProps, err = stepInto(fieldPath, schemaProps, name); err != nil {
			return nil, nil, err
		}
	}
	return fieldPath, schemaProps, nil
}

// stepInto steps into a property or a value of a map.
func stepInto(fieldPath *field.Path, props *v1.JSONSchemaProps, name string) (*field.Path, *v1.JSONSchemaProps, error) {
	switch {
	case props == nil:
	case len(props.Properties) > 0:
		p, ok := props.Properties[name]
		if !ok {
			return nil, nil, errNoField
		}
		return fieldPath.Child(name), &p, nil
	case props.AdditionalProperties != nil: // possibly without a schema
		return fieldPath.Key(name), props.AdditionalProperties.Schema, nil
	}
	return nil, nil, errNoField
}

// nextWord returns the text before the next delimiter, or the delimiter.
func nextWord(text string) string {
	if i := strings.IndexAny(text, ".[]"); i > 0 {
		return text[:i]
	} else if i == 0 {
		return text[:1]
	}
	return text
}

// readDotted reads the name after a dot.
func readDotted(text string) (name, rest string, err error) {
	if text == "" {
		return "", "", errors.New("unexpected end of JSON path")
	}
	name = nextWord(text)
	if text[0] == '\'' {
		if end := quotedEnd(text); end > 0 {
			name = text[:end]
		} else {
			name = text
		}
	}
	return name, text[len(name):], nil
}

// quotedEnd returns the index after the quoted text that starts s, or 0 if the quote is not closed.
func quotedEnd(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] == '\'' && s[i-1] != '\\' {
			return i + 1
		}
	}
	return 0
}

// readBracketed reads the quoted name after a bracket, and the closing bracket.
func readBracketed(text string) (name, rest string, err error) {
	if text == "" {
		return "", "", errors.New("unexpected end of JSON path")
	}
	end := 0
	if text[0] == '\'' {
		end = quotedEnd(text)
	}
	if end == 0 {
		return "", "", fmt.Errorf("expected single quoted string but got %s", nextWord(text))
	}
	if name, err = unescapeQuoted(text[1 : end-1]); err != nil {
		return "", "", fmt.Errorf("invalid string literal: %w", err)
	}
	switch {
	case len(text) == end:
		return "", "", errors.New("unexpected end of JSON path")
	case text[end] != ']':
		return "", "", fmt.Errorf("expected ] but got %s", nextWord(text[end:]))
	}
	return name, text[end+1:], nil
}

// quotedEscapes maps the letters of escape sequences to their characters.
var quotedEscapes = map[byte]byte{
	'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', '\'': '\'', '\\': '\\',
}

// unescapeQuoted replaces the escape sequences of a quoted name.
func unescapeQuoted(quoted string) (string, error) {
	var builder strings.Builder
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' || i+1 == len(quoted) {
			builder.WriteByte(quoted[i])
			continue
		}
		i++
		c, ok := quotedEscapes[quoted[i]]
		if !ok {
			return "", fmt.Errorf("invalid escape char %s", quoted[i-1:i+1])
		}
		builder.WriteByte(c)
	}
	return builder.String(), nil
}
