package golden

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// shownDifferences is the number of differences in a short description.
const shownDifferences = 6

// Tally counts steps that agree, by area.
type Tally map[string]*Count

// Count is the tally of one area. Identical counts steps without differences, and Equivalent those
// in which at most the wording of messages differs.
type Count struct{ Steps, Identical, Equivalent int }

// Add counts results.
func (t Tally) Add(results []Result) {
	for _, result := range results {
		count := t[result.Case.Area]
		if count == nil {
			count = &Count{}
			t[result.Case.Area] = count
		}
		count.Steps++
		if result.Equivalent {
			count.Equivalent++
		}
		if len(result.Differences) == 0 {
			count.Identical++
		}
	}
}

// Total returns the count over all areas.
func (t Tally) Total() Count {
	var all Count
	for _, c := range t {
		all.Steps += c.Steps
		all.Identical += c.Identical
		all.Equivalent += c.Equivalent
	}
	return all
}

// Write prints a line for each area and one for all.
func (t Tally) Write(w io.Writer) error {
	line := func(name string, c Count) error {
		_, err := fmt.Fprintf(w, "%-10s %4d of %4d steps are equivalent, %4d of them identical\n", name, c.Equivalent,
			c.Steps, c.Identical)
		return err
	}
	for _, area := range slices.Sorted(maps.Keys(t)) {
		if err := line(area, *t[area]); err != nil {
			return err
		}
	}
	return line("all", t.Total())
}

// Describe returns the differences of a step: all if full is true, otherwise the first few.
func (r Result) Describe(full bool) string {
	word := "DIFF"
	if r.Equivalent {
		word = "WORDING"
	}
	out := fmt.Sprintf("%s %s step %d %q: %s\n", word, r.Case.File, r.Step, r.Case.Steps[r.Step-1].Name, r.Request())
	for i, line := range r.Differences {
		if i == shownDifferences && !full {
			out += fmt.Sprintf("     … %d more\n", len(r.Differences)-i)
			break
		}
		out += "     " + line + "\n"
	}
	return out
}
