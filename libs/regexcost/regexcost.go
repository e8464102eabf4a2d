// Package regexcost estimates the cost of regular expressions of clients. Parsing, compiling and
// matching cannot be interrupted, and a few bytes of a pattern may take milliseconds. Callers
// therefore charge the estimate, or compare it with a limit, before each of them.
package regexcost

import (
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A step applies one instruction of a pattern to one byte of a text. It takes about 10 ns. Other
// costs are counted in steps, too.
const (
	// Cheap is the cost of parsing up to which a pattern is parsed without a charge: about two
	// milliseconds.
	Cheap = 200_000
	// StepsPerCompiled is the cost of compiling one instruction.
	StepsPerCompiled = 100

	// stepsPerByte is the cost of parsing one byte of a usual pattern.
	stepsPerByte = 20
	// stepsPerClass is the cost of parsing a Unicode class, such as \pL. Its ranges are sorted.
	stepsPerClass = 10_000
	// stepsPerFold is the cost for each character of a range that ignores case. The parser looks up
	// the other case of each.
	stepsPerFold = 2
	// maxFold is the last character that has another case.
	maxFold = 0x1e943
)

// ParseSteps returns the approximate cost of parsing a pattern. It does not parse the pattern.
func ParseSteps(pattern string) uint64 {
	steps := stepsPerByte * uint64(len(pattern))
	steps += stepsPerClass * uint64(strings.Count(pattern, `\p`)+strings.Count(pattern, `\P`))
	if ignoresCase(pattern) {
		for rest := pattern; ; {
			_, after, found := strings.Cut(rest, "-")
			if !found {
				break
			}
			steps += stepsPerFold * uint64(min(firstRune(after), maxFold))
			rest = after
		}
	}
	return steps
}

// ignoresCase reports whether a pattern may contain the flag i.
func ignoresCase(pattern string) bool {
	for {
		_, flags, found := strings.Cut(pattern, "(?")
		if !found {
			return false
		}
		names := flags[:len(flags)-len(strings.TrimLeft(flags, "imsU-"))]
		if strings.Contains(names, "i") {
			return true
		}
		pattern = flags
	}
}

// firstRune returns the first character of a class, or a larger one. An escape other than \x{} has
// at most three octal digits.
func firstRune(class string) rune {
	if hex, isHex := strings.CutPrefix(class, `\x{`); isHex {
		digits, _, _ := strings.Cut(hex, "}")
		if r, err := strconv.ParseUint(digits, 16, 31); err == nil {
			return rune(r)
		}
		return maxFold
	}
	if strings.HasPrefix(class, `\`) {
		return 0o777
	}
	r, _ := utf8.DecodeRuneInString(class)
	return r
}

// Instructions returns the approximate number of instructions of a pattern, or its length if it is
// invalid. It parses the pattern, but does not compile it, because that may take seconds.
func Instructions(pattern string) uint64 {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return uint64(len(pattern))
	}
	return instructionsOf(parsed)
}

// instructionsOf returns the approximate number of instructions of a parsed pattern. The parser
// bounds the depth and the repetitions.
func instructionsOf(pattern *syntax.Regexp) uint64 {
	var parts uint64
	for _, sub := range pattern.Sub {
		parts += instructionsOf(sub)
	}
	switch pattern.Op {
	case syntax.OpLiteral:
		return uint64(len(pattern.Rune))
	case syntax.OpRepeat:
		if pattern.Max < 0 {
			return parts*uint64(max(pattern.Min, 1)) + 1
		}
		return parts*uint64(pattern.Max) + uint64(pattern.Max-pattern.Min)
	case syntax.OpCapture:
		return parts + 2
	default:
		return parts + 1
	}
}
