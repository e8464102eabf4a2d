package meta

import (
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/rand"
)

// NameFunc tells what is wrong with a name; with prefix set, with a
// generateName.
type NameFunc = func(name string, prefix bool) []string

// DNSSubdomain allows lower-case DNS names of up to 253 characters: the rule of
// most kinds.
func DNSSubdomain(name string, prefix bool) []string {
	return validation.NameIsDNSSubdomain(name, prefix)
}

// DNSLabel allows one lower-case DNS label of up to 63 characters.
func DNSLabel(name string, prefix bool) []string {
	return validation.NameIsDNSLabel(name, prefix)
}

// DNS1035Label is DNSLabel without digits at the start.
func DNS1035Label(name string, prefix bool) []string {
	return validation.NameIsDNS1035Label(name, prefix)
}

// PathSegment allows everything that can stand in a URL path as one segment.
func PathSegment(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

const (
	randomLength  = 5
	maxNameLength = 63
)

// GenerateName makes a name from a generateName: the prefix, cut so that the
// name has at most 63 characters, and five random ones.
func GenerateName(prefix string) string {
	if most := maxNameLength - randomLength; len(prefix) > most {
		prefix = prefix[:most]
	}
	return prefix + rand.String(randomLength)
}
