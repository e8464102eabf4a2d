package validate

import "regexp"

// semver matches a version of semver.org, 2.0.0.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// SemanticVersion is a Format: three numbers and optional suffixes.
func SemanticVersion(value string) []string {
	if !semver.MatchString(value) {
		return []string{"must be a string compatible with semver.org spec 2.0.0"}
	}
	return nil
}
