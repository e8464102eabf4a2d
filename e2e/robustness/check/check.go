package check

import (
	"fmt"
	"time"

	"binnacle/e2e/robustness/history"
)

// Violation is one violation of a guarantee.
type Violation struct {
	Guarantee   string
	Subject     string        // the client, or the key of an object
	Time        time.Duration // since the beginning of the history
	Description string
}

// String implements fmt.Stringer.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s at %s: %s", v.Guarantee, v.Subject, v.Time.Round(time.Millisecond), v.Description)
}

// Checker checks one guarantee. Package documentation lists them.
type Checker struct {
	Guarantee string
	check     func(*history.History, *report)
}

// Check returns the violations of the guarantee, at most maxViolations.
func (c Checker) Check(recorded *history.History) []Violation {
	found := &report{guarantee: c.Guarantee}
	c.check(recorded, found)
	return found.violations
}

// Checkers returns the checkers of all guarantees.
func Checkers() []Checker {
	return []Checker{
		{"ordered", checkOrder},
		{"unique", checkUnique},
		{"atomic", checkEventVersions},
		{"reliable", checkComplete},
		{"resumable", checkResumption},
		{"bookmarkable", checkBookmarks},
		{"consistent", checkConsistency},
		{"fresh", checkFreshness},
		{"linearizable", checkLinearizability},
		{"exact", checkInformerStores},
	}
}

// All checks all guarantees.
func All(recorded *history.History) []Violation {
	var violations []Violation
	for _, checker := range Checkers() {
		violations = append(violations, checker.Check(recorded)...)
	}
	return violations
}

// maxViolations bounds the number of violations per guarantee.
const maxViolations = 20

// report collects the violations of one guarantee, up to maxViolations.
type report struct {
	guarantee  string
	violations []Violation
}

// add adds a violation, unless there are maxViolations already.
func (r *report) add(subject string, at time.Duration, format string, args ...any) {
	if len(r.violations) < maxViolations {
		r.violations = append(r.violations, Violation{r.guarantee, subject, at, fmt.Sprintf(format, args...)})
	}
}

// allSessions returns the sessions of all watches and informers.
func allSessions(recorded *history.History) []history.Session {
	var sessions []history.Session
	for _, watch := range recorded.AllWatches() {
		sessions = append(sessions, watch.Sessions()...)
	}
	return sessions
}

// formatEvent describes an event in a violation.
func formatEvent(event history.Event) string {
	return fmt.Sprintf("%s %s at revision %d (%s %s)", event.Type, event.Key, event.Revision, event.Value, event.Color)
}
