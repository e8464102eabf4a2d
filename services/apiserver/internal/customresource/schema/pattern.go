package schema

import (
	"regexp"
	"regexp/syntax"
	"runtime"
	"sync/atomic"
)

// pattern is a regular expression that is compiled when it is first needed, and kept while there is room:
// a few bytes may become some hundred KiB.
type pattern struct {
	text string
	room *share
	kept atomic.Pointer[compiled]
	size atomic.Int64 // in instructions, once it is known
}

// compiled is what became of a pattern.
type compiled struct {
	re   *regexp.Regexp
	size int // in instructions, each of which a byte may take
	err  error
}

// get compiles the pattern where it is not kept, and tells that it did.
func (p *pattern) get() (c *compiled, fresh bool) {
	if c = p.kept.Load(); c != nil {
		return c, false
	}
	c = &compiled{}
	if c.re, c.err = regexp.Compile(p.text); c.err == nil {
		c.size = instructions(p.text)
	}
	p.size.Store(int64(c.size))
	bytes := int64(len(p.text) + c.size*perInstruction)
	if p.room.take(bytes) && !p.kept.CompareAndSwap(nil, c) {
		p.room.take(-bytes) // somebody was quicker
	}
	return c, true
}

// Room is for the compiled patterns of many programs, which other ones compile each time.
type Room struct{ left atomic.Int64 }

const (
	// roomForPatterns is in bytes: some ten thousand ordinary ones, of 50 instructions.
	roomForPatterns = 64 << 20
	// perInstruction is how many bytes it takes, about.
	perInstruction = 100
)

// NewRoom returns an empty one.
func NewRoom() *Room {
	r := &Room{}
	r.left.Store(roomForPatterns)
	return r
}

// share is what one program has of a room.
type share struct {
	room  *Room
	taken atomic.Int64
}

// shareOf is given back when the program is not used any more.
func shareOf(room *Room, p *Program) *share {
	s := &share{room: room}
	runtime.AddCleanup(p, func(s *share) { s.room.left.Add(s.taken.Load()) }, s)
	return s
}

func (s *share) take(bytes int64) bool {
	if s.room.left.Add(-bytes) < 0 && bytes > 0 {
		s.room.left.Add(bytes)
		return false
	}
	s.taken.Add(bytes)
	return true
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
	// perCompiled is what compiling an instruction takes, some microsecond.
	perCompiled = 100
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
	if n > c.program.most-c.spent {
		return false
	}
	c.spend(n)
	return true
}

// compiled is a pattern that is ready; nil when there is not so much left that it could be compiled.
func (c *checker) compiled(p *pattern) *compiled {
	if p.kept.Load() == nil && int(p.size.Load())*perCompiled > c.program.most-c.spent {
		return nil
	}
	re, fresh := p.get()
	if fresh {
		c.spend(re.size * perCompiled)
	}
	return re
}
