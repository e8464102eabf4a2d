package regexcost_test

import (
	"regexp"
	"strings"
	"testing"

	"binnacle/libs/regexcost"
)

// TestParseStepsCoverExpensivePatterns checks that patterns that take milliseconds to parse are not cheap.
func TestParseStepsCoverExpensivePatterns(t *testing.T) {
	for name, pattern := range map[string]string{
		"range that ignores case":      `(?i)[B-\x{1e942}]`,
		"excluded range":               `(?i:[^B-\x{1e942}])`,
		"range of literal characters":  "(?i)[B-\U0001e942]",
		"range with leading zeros":     `(?i)[B-\x{000001e942}]`,
		"flag after other flags":       `(?ms-U:(?si:[B-\x{1e942}]))`,
		"Unicode classes":              strings.Repeat(`[\pL\pN]`, 15),
		"excluded Unicode classes":     strings.Repeat(`\PL`, 30),
		"Unicode classes with a name":  strings.Repeat(`\p{Lu}`, 30),
		"Unicode classes without case": "(?i)" + strings.Repeat(`\pL`, 30),
		"long text":                    strings.Repeat("x", 20_000),
	} {
		if _, err := regexp.Compile(pattern); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := regexcost.ParseSteps(pattern); n <= regexcost.Cheap {
			t.Errorf("%s: got %d steps, want more than %d", name, n, regexcost.Cheap)
		}
	}
}

// TestUsualPatternsAreCheap checks that patterns as definitions contain them are cheap.
func TestUsualPatternsAreCheap(t *testing.T) {
	for _, pattern := range []string{
		"", `^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`, `(?i)^[a-z0-9-]+$`, `(?i)^[a-zà-ÿа-я]+-[\x00-\xff]+$`,
		`^[\p{L}\p{N}\p{P}\p{S} ]+$`, `(?P<i>[一-龥])`, `[B-\x{1e942}]`, `a(?`, `(?i)-`, strings.Repeat("[a-z]|", 1000),
	} {
		if n := regexcost.ParseSteps(pattern); n > regexcost.Cheap {
			t.Errorf("%q: got %d steps, want at most %d", pattern, n, regexcost.Cheap)
		}
	}
}
