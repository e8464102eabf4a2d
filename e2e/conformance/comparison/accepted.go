package comparison

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// acceptedDifference is a class of differences that is accepted, in the requests of some subjects.
type acceptedDifference struct {
	class   *regexp.Regexp
	subject string // a part of the subject, such as a resource; empty for all subjects
	reason  string
}

// readAccepted reads the accepted differences. An entry has two lines: a regular expression that
// matches the whole class of a difference, and the reason, which is indented. An expression that
// starts with [text] accepts only requests whose subject contains the text. Lines that start with #
// are comments.
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
			subject := ""
			if strings.HasPrefix(line, "[") {
				subject, line, _ = strings.Cut(line[1:], "] ")
			}
			class, err := regexp.Compile("^(?:" + line + ")$")
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, n, err)
			}
			out = append(out, &acceptedDifference{class: class, subject: subject})
		}
	}
	for _, a := range out {
		if a.reason == "" {
			return nil, fmt.Errorf("%s: no reason for %s", file, a.class)
		}
	}
	return out, lines.Err()
}

// isAccepted reports whether an entry accepts a class in the requests of a subject.
func isAccepted(list []*acceptedDifference, class, subject string) bool {
	return slices.ContainsFunc(list, func(a *acceptedDifference) bool {
		return a.class.MatchString(class) && strings.Contains(subject, a.subject)
	})
}
