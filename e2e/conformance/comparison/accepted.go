package comparison

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// acceptedDifference is a class of differences that is accepted.
type acceptedDifference struct {
	class  *regexp.Regexp
	reason string
}

// readAccepted reads the accepted differences. An entry has two lines: a regular expression that
// matches the whole class of a difference, and the reason, which is indented. Lines that start with
// # are comments.
func readAccepted(file string) ([]*acceptedDifference, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []*acceptedDifference
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
		case strings.HasPrefix(line, " "):
			if len(out) == 0 || out[len(out)-1].reason != "" {
				return nil, fmt.Errorf("%s:%d: a reason without a class", file, n)
			}
			out[len(out)-1].reason = strings.TrimSpace(line)
		default:
			class, err := regexp.Compile("^(?:" + line + ")$")
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, n, err)
			}
			out = append(out, &acceptedDifference{class: class})
		}
	}
	for _, a := range out {
		if a.reason == "" {
			return nil, fmt.Errorf("%s: no reason for %s", file, a.class)
		}
	}
	return out, lines.Err()
}

// isAccepted reports whether an entry accepts a class.
func isAccepted(list []*acceptedDifference, class string) bool {
	return slices.ContainsFunc(list, func(a *acceptedDifference) bool { return a.class.MatchString(class) })
}
