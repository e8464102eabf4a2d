package resourcequota

import (
	"maps"
	"slices"
	"strings"

	"binnacle/libs/quota"
)

type (
	amounts     = quota.Amounts
	names       = quota.Names
	requirement = quota.Requirement
)

// formatAmounts formats amounts sorted by name, for messages.
func formatAmounts(a amounts) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		q := a[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// formatNames formats names in order, for messages.
func formatNames(n names) string {
	var parts []string
	for _, name := range slices.Sorted(slices.Values(n)) {
		parts = append(parts, string(name))
	}
	return strings.Join(parts, ",")
}
