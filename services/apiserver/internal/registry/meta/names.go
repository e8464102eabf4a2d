package meta

import (
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/rand"
)

// DNSSubdomain allows lower-case DNS names of up to 253 characters. Most kinds use it.
func DNSSubdomain(name string, prefix bool) []string {
	return validation.NameIsDNSSubdomain(name, prefix)
}

// DNSLabel allows one lower-case DNS label of up to 63 characters.
func DNSLabel(name string, prefix bool) []string {
	return validation.NameIsDNSLabel(name, prefix)
}

// DNS1035Label allows one lower-case DNS label that does not start with a digit.
func DNS1035Label(name string, prefix bool) []string {
	return validation.NameIsDNS1035Label(name, prefix)
}

// PathSegment allows any valid segment of a URL path.
func PathSegment(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

// Limits of generated names, in characters.
const (
	randomLength  = 5
	maxNameLength = 63
)

// GenerateName returns a name for a generateName: the prefix, cut so that the name has at most 63
// characters, and five random characters.
func GenerateName(prefix string) string {
	prefix = prefix[:min(len(prefix), maxNameLength-randomLength)]
	return prefix + rand.String(randomLength)
}
