package validate

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OneOf wants one of some values; the message lists them in the order given.
func OneOf[T ~string](a At, name string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		a.Add(field.NotSupported(a.to(name), value, allowed))
	}
}

// RequiredOneOf is OneOf for a field that must be set.
func RequiredOneOf[T ~string](a At, name string, value T, allowed ...T) {
	if value == "" {
		a.Required(name, "")
		return
	}
	OneOf(a, name, value, allowed...)
}

// OptionalOneOf is OneOf for a field that may be unset.
func OptionalOneOf[T ~string](a At, name string, value *T, allowed ...T) {
	if value != nil {
		OneOf(a, name, *value, allowed...)
	}
}

// Messages records each of some messages about a value.
func (a At) Messages(name string, value any, messages []string) {
	for _, msg := range messages {
		a.Invalid(name, value, msg)
	}
}

// A Format says what is wrong with a text.
type Format = func(string) []string

// Text wants a text of a format.
func (a At) Text(name, value string, format Format) { a.Messages(name, value, format(value)) }

// RequiredText is Text for a field that must be set.
func (a At) RequiredText(name, value string, format Format) {
	if value == "" {
		a.Required(name, "")
		return
	}
	a.Text(name, value, format)
}

// OptionalText is Text for a field that may be empty.
func (a At) OptionalText(name, value string, format Format) {
	if value != "" {
		a.Text(name, value, format)
	}
}

// Formats of texts.
var (
	// DNSLabel and DNSSubdomain are of RFC 1123.
	DNSLabel               Format = content.IsDNS1123Label
	DNSSubdomain           Format = content.IsDNS1123Subdomain
	DNSSubdomainUnderscore Format = content.IsDNS1123SubdomainWithUnderscore
	// QualifiedName is a name with or without a domain, as keys of labels are.
	QualifiedName Format = content.IsQualifiedName
	LabelValue    Format = content.IsValidLabelValue
	// DataKey is a key of a config map or a secret.
	DataKey Format = content.IsConfigMapKey
	// PortName is a name of IANA's.
	PortName       Format = content.IsValidPortName
	HTTPHeaderName Format = content.IsHTTPHeaderName
)

// NamePrefix is the beginning of a name that is a DNS subdomain.
func NamePrefix(value string) []string { return validation.NameIsDNSSubdomain(value, true) }

// LabelKey wants a key that labels can have.
func (a At) LabelKey(name, key string) {
	a.Add(metav1validation.ValidateLabelName(key, a.to(name))...)
}

// Labels wants keys and values that labels can have.
func (a At) Labels(name string, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	path := a.to(name)
	for _, key := range sortedKeys(labels) {
		a.Add(metav1validation.ValidateLabels(map[string]string{key: labels[key]}, path)...)
	}
}

// Annotations wants keys that annotations can have, and not too much in all.
func (a At) Annotations(name string, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	a.Add(validation.ValidateAnnotations(annotations, a.to(name))...)
}

// Selector wants a label selector that can be understood. Values that no label
// has are told only when anyValue is false.
func (a At) Selector(name string, s *metav1.LabelSelector, anyValue bool) {
	if s == nil {
		return
	}
	o := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: anyValue}
	a.Add(metav1validation.ValidateLabelSelector(s, o, a.to(name))...)
}
