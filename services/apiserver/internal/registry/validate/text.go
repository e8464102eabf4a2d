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
func OneOf[T ~string](p Path, name string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		p.Add(field.NotSupported(p.childPath(name), value, allowed))
	}
}

// RequiredOneOf is OneOf for a required field.
func RequiredOneOf[T ~string](p Path, name string, value T, allowed ...T) {
	if value == "" {
		p.Required(name, "")
		return
	}
	OneOf(p, name, value, allowed...)
}

// OptionalOneOf is OneOf for an optional field.
func OptionalOneOf[T ~string](p Path, name string, value *T, allowed ...T) {
	if value != nil {
		OneOf(p, name, *value, allowed...)
	}
}

// NamedOneOf is RequiredOneOf whose message lists the values if the field is empty.
func NamedOneOf[T ~string](p Path, name string, value T, allowed ...T) {
	if value == "" {
		p.Required(name, fmt.Sprintf("valid values: %q", allowed))
		return
	}
	OneOf(p, name, value, allowed...)
}

// InvalidMessages records each message as an error of a value.
func (p Path) InvalidMessages(name string, value any, messages []string) {
	for _, msg := range messages {
		p.Invalid(name, value, msg)
	}
}

// A Format returns the errors of a text.
type Format = func(string) []string

// Text requires a text of a format.
func (p Path) Text(name, value string, format Format) { p.InvalidMessages(name, value, format(value)) }

// RequiredText is Text for a required field.
func (p Path) RequiredText(name, value string, format Format) {
	if value == "" {
		p.Required(name, "")
		return
	}
	p.Text(name, value, format)
}

// MaxBytes limits the size of a text in bytes.
func (p Path) MaxBytes(name, value string, maximum int) {
	if len(value) > maximum {
		p.TooLong(name, maximum)
	}
}

// DomainPath requires a path with a domain as prefix, such as example.com/name.
func (p Path) DomainPath(name, value string) {
	p.Add(content.IsDomainPrefixedPath(p.childPath(name), value)...)
}

// OptionalText is Text for a field that may be empty.
func (p Path) OptionalText(name, value string, format Format) {
	if value != "" {
		p.Text(name, value, format)
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
func (p Path) HasLabel(name string, labels map[string]string, key, value string) {
	got, ok := labels[key]
	switch {
	case !ok:
		p.Child(name).Add(field.Required(p.childPath(name).Key(key), fmt.Sprintf("must be '%s'", value)))
	case got != value:
		p.Child(name).Add(field.Invalid(p.childPath(name).Key(key), labels, fmt.Sprintf("must be '%s'", value)))
	}
}

// LabelKey requires a valid label key.
func (p Path) LabelKey(name, key string) {
	p.Add(metav1validation.ValidateLabelName(key, p.childPath(name))...)
}

// Labels requires valid label keys and values.
func (p Path) Labels(name string, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	path := p.childPath(name)
	for _, key := range sortedKeys(labels) {
		p.Add(metav1validation.ValidateLabels(map[string]string{key: labels[key]}, path)...)
	}
}

// Annotations requires valid annotation keys, and limits the total size.
func (p Path) Annotations(name string, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	p.Add(validation.ValidateAnnotations(annotations, p.childPath(name))...)
}

// Conditions requires valid conditions of distinct types.
func (p Path) Conditions(name string, conditions []metav1.Condition) {
	p.Add(metav1validation.ValidateConditions(conditions, p.childPath(name))...)
}

// HasInvalidLabelValue reports whether a label selector has an invalid label value.
func HasInvalidLabelValue(s *metav1.LabelSelector) bool {
	return s != nil && metav1validation.LabelSelectorHasInvalidLabelValue(s)
}

// Selector requires a valid label selector. Invalid label values are reported only if anyValue is
// false.
func (p Path) Selector(name string, s *metav1.LabelSelector, allowInvalidValues bool) {
	if s == nil {
		return
	}
	o := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: allowInvalidValues}
	p.Add(metav1validation.ValidateLabelSelector(s, o, p.childPath(name))...)
}
