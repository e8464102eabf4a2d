package schema

import (
	"regexp"
	"regexp/syntax"
	"sync"
)

// pattern is a regular expression that is compiled when it is first needed:
// compiled ones are large.
type pattern struct {
	text string
	once sync.Once
	re   *regexp.Regexp
	size int // in instructions, each of which a byte may take
	err  error
}

func (p *pattern) get() (*regexp.Regexp, int, error) {
	p.once.Do(func() {
		if p.re, p.err = regexp.Compile(p.text); p.err == nil {
			p.size = instructions(p.text)
		}
	})
	return p.re, p.size, p.err
}

// instructions of an expression that can be compiled.
func instructions(text string) int {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(program.Inst)
}

// What is costly is counted in bytes that one instruction of a pattern looks at, some 10 ns each.
const (
	// cheap is what one check may take before it is a lot: some two milliseconds.
	cheap = 200_000
	// mostMatched is what all patterns of a resource, and all else, may take, as none can be
	// interrupted: some three seconds. Patterns of 100 instructions look at 2.6 MB.
	mostMatched = 1 << 28
	// perNode is what a value and one schema take: there may be many branches for each value.
	perNode = 3
	// perValue is what comparing with an enum's value takes.
	perValue = 8
	// toldBytes is how many bytes of an error are put into words in the time of one that a pattern looks at.
	toldBytes = 4
)

// spend counts what is costly.
func (c *checker) spend(n int) {
	c.spent += n
	if c.spent >= cheap && c.costly != nil {
		c.costly()
		c.costly = nil
	}
}

// mayMatch tells whether there is so much left for patterns, and takes it.
func (c *checker) mayMatch(n int) bool {
	if n > mostMatched-c.spent {
		return false
	}
	c.spend(n)
	return true
}
