package schema

import (
	"regexp"
	"runtime"
	"sync/atomic"

	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"binnacle/libs/regexcost"
)

// pattern is a regular expression that is compiled on first use and cached while the memory budget
// lasts. A few bytes of text may compile to some hundred KiB.
type pattern struct {
	text   string
	budget *budgetShare
	cached atomic.Pointer[compiledPattern]
	size   atomic.Int64 // in instructions; 0 until it is known
}

// compiledPattern is the result of compiling a pattern.
type compiledPattern struct {
	re   *regexp.Regexp
	size int // number of instructions; each may run once for each byte of text
	err  error
}

// get returns the compiled pattern and reports whether it had to compile it.
func (p *pattern) get() (compiled *compiledPattern, fresh bool) {
	compiled = p.cached.Load()
	if compiled != nil {
		return compiled, false
	}
	compiled = &compiledPattern{}
	compiled.re, compiled.err = regexp.Compile(p.text)
	if compiled.err == nil {
		compiled.size = int(regexcost.Instructions(p.text))
	}
	p.size.Store(int64(compiled.size))
	// The ranges of a Unicode class take about as many bytes as parsing it takes steps.
	bytes := int64(int(regexcost.ParseSteps(p.text)) + compiled.size*perInstruction)
	if p.budget.acquire(bytes) && !p.cached.CompareAndSwap(nil, compiled) {
		p.budget.acquire(-bytes) // another goroutine cached it first
	}
	return compiled, true
}

// PatternBudget is the memory budget for the compiled patterns of many programs. Patterns that
// exceed it are compiled on each use. Its zero value is an unused budget.
type PatternBudget struct{ used atomic.Int64 }

const (
	// maxPatternBytes is the size of a PatternBudget in bytes. It suffices for some ten thousand
	// patterns of 50 instructions.
	maxPatternBytes = 64 << 20
	// perInstruction is the approximate size of an instruction in bytes.
	perInstruction = 100
)

// budgetShare is the part of a PatternBudget that one program uses.
type budgetShare struct {
	budget *PatternBudget
	bytes  atomic.Int64
}

// newBudgetShare returns the share of a program. It is released when the program is unreachable.
func newBudgetShare(budget *PatternBudget, p *Program) *budgetShare {
	s := &budgetShare{budget: budget}
	runtime.AddCleanup(p, func(s *budgetShare) { s.budget.used.Add(-s.bytes.Load()) }, s)
	return s
}

// acquire reserves bytes and reports whether they were available. A negative number releases bytes.
func (s *budgetShare) acquire(bytes int64) bool {
	if s.budget.used.Add(bytes) > maxPatternBytes && bytes > 0 {
		s.budget.used.Add(-bytes)
		return false
	}
	s.bytes.Add(bytes)
	return true
}

// Cost is counted in steps of regexcost, of about 10 ns each.
const (
	// costlyFrom is the cost from which one check counts as costly: about two milliseconds.
	costlyFrom = 200_000
	// MaxMatched is the maximum cost of all patterns and other checks of a resource, about three
	// seconds, because pattern matching cannot be interrupted. It suffices for patterns of 100
	// instructions on 2.6 MB.
	MaxMatched = 1 << 28
	// perNode is the cost of checking a value against one schema. There may be many branches per
	// value.
	perNode = 3
	// perValue is the cost of a comparison with an enum value.
	perValue = 8
	// bytesPerCost is the number of error bytes that are formatted at a cost of 1.
	bytesPerCost = 4
)

// addCost adds to the cost and calls costly when the cost reaches costlyFrom.
func (c *checker) addCost(n int) {
	c.spent += n
	if c.spent >= costlyFrom && c.costly != nil {
		c.costly()
		c.costly = nil
	}
}

// spendBudget adds a cost of n if it fits into the remaining budget. Otherwise it returns false.
func (c *checker) spendBudget(n int) bool {
	if n > c.program.maxCost-c.spent {
		return false
	}
	c.addCost(n)
	return true
}

// compiledPattern returns a compiled pattern, or nil if the remaining budget is too small to
// compile it.
func (c *checker) compiledPattern(p *pattern) *compiledPattern {
	if cached := p.cached.Load(); cached != nil {
		return cached
	}
	const parses = 2 // by get
	parsing := int(parses * regexcost.ParseSteps(p.text))
	if parsing+int(p.size.Load())*regexcost.StepsPerCompiled > c.program.maxCost-c.spent {
		return nil
	}
	c.addCost(parsing)
	re, fresh := p.get()
	if fresh {
		c.addCost(re.size * regexcost.StepsPerCompiled)
	}
	return re
}

// hasFormat reports whether a text has a format. Times in the common form have a fast path because
// the general check takes microseconds.
func hasFormat(format, text string) bool {
	if (format == "date-time" || format == "datetime") && isCommonDateTime(text) {
		return true
	}
	return strfmt.Default.Validates(format, text)
}

// isCommonDateTime reports whether a text is a valid time in the form 2006-01-02T15:04:05Z. It
// returns false for days after the 28th and for leap seconds, which need the general check.
func isCommonDateTime(text string) bool {
	const form = "0000-00-00T00:00:00Z"
	if len(text) != len(form) {
		return false
	}
	for i := range len(form) {
		isDigit := text[i] >= '0' && text[i] <= '9'
		if form[i] == '0' && !isDigit || form[i] != '0' && text[i] != form[i] {
			return false
		}
	}
	twoDigits := func(i int) int { return int(text[i]-'0')*10 + int(text[i+1]-'0') }
	month, day := twoDigits(5), twoDigits(8)
	hour, minute, second := twoDigits(11), twoDigits(14), twoDigits(17)
	return month >= 1 && month <= 12 && day >= 1 && day <= 28 && hour < 24 && minute < 60 && second < 60
}
