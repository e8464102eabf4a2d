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
func (c Checker) Check(h *history.History) []Violation {
	r := &report{guarantee: c.Guarantee}
	c.check(h, r)
	return r.violations
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
func All(h *history.History) []Violation {
	var all []Violation
	for _, c := range Checkers() {
		all = append(all, c.Check(h)...)
	}
	return all
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
func allSessions(h *history.History) []history.Session {
	var all []history.Session
	for _, w := range h.AllWatches() {
		all = append(all, w.Sessions()...)
	}
	return all
}

// formatEvent describes an event in a violation.
func formatEvent(e history.Event) string {
	return fmt.Sprintf("%s %s at revision %d (%s %s)", e.Type, e.Key, e.Revision, e.Value, e.Color)
}
