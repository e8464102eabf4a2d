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
func OneOf[T ~string](f Field, name string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		f.Add(field.NotSupported(f.childPath(name), value, allowed))
	}
}

// RequiredOneOf requires that a field is set to one of the values.
func RequiredOneOf[T ~string](f Field, name string, value T, allowed ...T) {
	if value == "" {
		f.Required(name, "")
		return
	}
	OneOf(f, name, value, allowed...)
}

// OptionalOneOf requires that a field has one of the values, if it is set.
func OptionalOneOf[T ~string](f Field, name string, value *T, allowed ...T) {
	if value != nil {
		OneOf(f, name, *value, allowed...)
	}
}

// NamedOneOf requires that a field is set to one of the values, like RequiredOneOf. If the field is
// empty, the message lists the values.
func NamedOneOf[T ~string](f Field, name string, value T, allowed ...T) {
	if value == "" {
		f.Required(name, fmt.Sprintf("valid values: %q", allowed))
		return
	}
	OneOf(f, name, value, allowed...)
}

// InvalidMessages records each message as an error of a value.
func (f Field) InvalidMessages(name string, value any, messages []string) {
	for _, msg := range messages {
		f.Invalid(name, value, msg)
	}
}

// A Format returns the errors of a text.
type Format = func(string) []string

// CheckText requires a text of a format.
func (f Field) CheckText(name, value string, format Format) {
	f.InvalidMessages(name, value, format(value))
}

// CheckRequiredText requires that a field is set and has a format.
func (f Field) CheckRequiredText(name, value string, format Format) {
	if value == "" {
		f.Required(name, "")
		return
	}
	f.CheckText(name, value, format)
}

// CheckMaxBytes limits the size of a text in bytes.
func (f Field) CheckMaxBytes(name, value string, maximum int) {
	if len(value) > maximum {
		f.TooLong(name, maximum)
	}
}

// CheckDomainPath requires a path with a domain as prefix, such as example.com/name.
func (f Field) CheckDomainPath(name, value string) {
	f.Add(content.IsDomainPrefixedPath(f.childPath(name), value)...)
}

// CheckOptionalText requires that a field has a format, if it is not empty.
func (f Field) CheckOptionalText(name, value string, format Format) {
	if value != "" {
		f.CheckText(name, value, format)
	}
}

// Formats of texts.
var (
	// DNSLabel and DNSSubdomain are defined in RFC 1123.
	DNSLabel               Format = content.IsDNS1123Label
	DNSSubdomain           Format = content.IsDNS1123Subdomain
	DNSSubdomainUnderscore Format = content.IsDNS1123SubdomainWithUnderscore
	// DNS1035Label starts with a letter.
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

// RequireLabel requires a label with a value.
func (f Field) RequireLabel(name string, labels map[string]string, key, value string) {
	got, ok := labels[key]
	switch {
	case !ok:
		f.Child(name).Add(field.Required(f.childPath(name).Key(key), fmt.Sprintf("must be '%s'", value)))
	case got != value:
		f.Child(name).Add(field.Invalid(f.childPath(name).Key(key), labels, fmt.Sprintf("must be '%s'", value)))
	}
}

// CheckLabelKey requires a valid label key.
func (f Field) CheckLabelKey(name, key string) {
	f.Add(metav1validation.ValidateLabelName(key, f.childPath(name))...)
}

// CheckLabels requires valid label keys and values.
func (f Field) CheckLabels(name string, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	path := f.childPath(name)
	for _, key := range sortedKeys(labels) {
		f.Add(metav1validation.ValidateLabels(map[string]string{key: labels[key]}, path)...)
	}
}

// CheckAnnotations requires valid annotation keys, and limits the total size.
func (f Field) CheckAnnotations(name string, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	f.Add(validation.ValidateAnnotations(annotations, f.childPath(name))...)
}

// CheckConditions requires valid conditions of distinct types.
func (f Field) CheckConditions(name string, conditions []metav1.Condition) {
	f.Add(metav1validation.ValidateConditions(conditions, f.childPath(name))...)
}

// HasInvalidLabelValue reports whether a label selector has an invalid label value.
func HasInvalidLabelValue(s *metav1.LabelSelector) bool {
	return s != nil && metav1validation.LabelSelectorHasInvalidLabelValue(s)
}

// CheckSelector requires a valid label selector. allowInvalidValues accepts invalid label values.
func (f Field) CheckSelector(name string, s *metav1.LabelSelector, allowInvalidValues bool) {
	if s == nil {
		return
	}
	o := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: allowInvalidValues}
	f.Add(metav1validation.ValidateLabelSelector(s, o, f.childPath(name))...)
}
