package validate

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OneOf requires one of the allowed values, which the message lists in the given order.
func OneOf[T ~string](a At, name string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		a.Add(field.NotSupported(a.to(name), value, allowed))
	}
}

// RequiredOneOf is OneOf for a required field.
func RequiredOneOf[T ~string](a At, name string, value T, allowed ...T) {
	if value == "" {
		a.Required(name, "")
		return
	}
	OneOf(a, name, value, allowed...)
}

// OptionalOneOf is OneOf for an optional field.
func OptionalOneOf[T ~string](a At, name string, value *T, allowed ...T) {
	if value != nil {
		OneOf(a, name, *value, allowed...)
	}
}

// NamedOneOf is RequiredOneOf whose message lists the values if the field is empty.
func NamedOneOf[T ~string](a At, name string, value T, allowed ...T) {
	if value == "" {
		a.Required(name, fmt.Sprintf("valid values: %q", allowed))
		return
	}
	OneOf(a, name, value, allowed...)
}

// Messages records each message as an error of a value.
func (a At) Messages(name string, value any, messages []string) {
	for _, msg := range messages {
		a.Invalid(name, value, msg)
	}
}

// A Format returns the errors of a text.
type Format = func(string) []string

// Text requires a text of a format.
func (a At) Text(name, value string, format Format) { a.Messages(name, value, format(value)) }

// RequiredText is Text for a required field.
func (a At) RequiredText(name, value string, format Format) {
	if value == "" {
		a.Required(name, "")
		return
	}
	a.Text(name, value, format)
}

// MaxBytes limits the size of a text in bytes.
func (a At) MaxBytes(name, value string, maximum int) {
	if len(value) > maximum {
		a.TooLong(name, maximum)
	}
}

// DomainPath requires a path with a domain as prefix, such as example.com/name.
func (a At) DomainPath(name, value string) {
	a.Add(content.IsDomainPrefixedPath(a.to(name), value)...)
}

// OptionalText is Text for a field that may be empty.
func (a At) OptionalText(name, value string, format Format) {
	if value != "" {
		a.Text(name, value, format)
	}
}

// Formats of texts.
var (
	// DNSLabel and DNSSubdomain are defined in RFC 1123.
	DNSLabel               Format = content.IsDNS1123Label
	DNSSubdomain           Format = content.IsDNS1123Subdomain
	DNSSubdomainUnderscore Format = content.IsDNS1123SubdomainWithUnderscore
	// DNS1035Label begins with a letter.
	DNS1035Label Format = content.IsDNS1035Label
	// QualifiedName is a name with an optional domain, as keys of labels are.
	QualifiedName Format = content.IsQualifiedName
	LabelValue    Format = content.IsValidLabelValue
	// DataKey is a key of a config map or a secret.
	DataKey Format = content.IsConfigMapKey
	// PortName is an IANA service name.
	PortName Format = content.IsValidPortName
	// PathSegment is any valid segment of a URL path.
	PathSegment    Format = path.IsValidPathSegmentName
	HTTPHeaderName Format = content.IsHTTPHeaderName
)

// NamePrefix requires the prefix of a DNS subdomain.
func NamePrefix(value string) []string { return validation.NameIsDNSSubdomain(value, true) }

// HasLabel requires a label with a value.
func (a At) HasLabel(name string, labels map[string]string, key, value string) {
	got, ok := labels[key]
	switch {
	case !ok:
		a.Child(name).Add(field.Required(a.to(name).Key(key), fmt.Sprintf("must be '%s'", value)))
	case got != value:
		a.Child(name).Add(field.Invalid(a.to(name).Key(key), labels, fmt.Sprintf("must be '%s'", value)))
	}
}

// LabelKey requires a valid label key.
func (a At) LabelKey(name, key string) {
	a.Add(metav1validation.ValidateLabelName(key, a.to(name))...)
}

// Labels requires valid label keys and values.
func (a At) Labels(name string, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	path := a.to(name)
	for _, key := range sortedKeys(labels) {
		a.Add(metav1validation.ValidateLabels(map[string]string{key: labels[key]}, path)...)
	}
}

// Annotations requires valid annotation keys, and limits the total size.
func (a At) Annotations(name string, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	a.Add(validation.ValidateAnnotations(annotations, a.to(name))...)
}

// Conditions requires valid conditions of distinct types.
func (a At) Conditions(name string, conditions []metav1.Condition) {
	a.Add(metav1validation.ValidateConditions(conditions, a.to(name))...)
}

// HasInvalidValue reports whether a label selector has an invalid label value.
func HasInvalidValue(s *metav1.LabelSelector) bool {
	return s != nil && metav1validation.LabelSelectorHasInvalidLabelValue(s)
}

// Selector requires a valid label selector. Invalid label values are reported only if anyValue is
// false.
func (a At) Selector(name string, s *metav1.LabelSelector, anyValue bool) {
	if s == nil {
		return
	}
	o := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: anyValue}
	a.Add(metav1validation.ValidateLabelSelector(s, o, a.to(name))...)
}
