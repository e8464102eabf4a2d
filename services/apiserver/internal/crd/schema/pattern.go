package schema

import (
	"regexp"
	"regexp/syntax"
	"runtime"
	"sync/atomic"

	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// pattern is a regular expression that is compiled on first use and cached while the memory budget
// lasts. A few bytes of text may compile to some hundred KiB.
type pattern struct {
	text string
	room *share
	kept atomic.Pointer[compiled]
	size atomic.Int64 // in instructions; 0 until it is known
}

// compiled is the result of compiling a pattern.
type compiled struct {
	re   *regexp.Regexp
	size int // number of instructions; each may run once for each byte of text
	err  error
}

// get returns the compiled pattern and reports whether it had to compile it.
func (p *pattern) get() (c *compiled, fresh bool) {
	c = p.kept.Load()
	if c != nil {
		return c, false
	}
	c = &compiled{}
	c.re, c.err = regexp.Compile(p.text)
	if c.err == nil {
		c.size = instructions(p.text)
	}
	p.size.Store(int64(c.size))
	bytes := int64(len(p.text) + c.size*perInstruction)
	if p.room.take(bytes) && !p.kept.CompareAndSwap(nil, c) {
		p.room.take(-bytes) // another goroutine cached it first
	}
	return c, true
}

// Room is the memory budget for compiled patterns of many programs. Patterns that do not fit are
// compiled on each use.
type Room struct{ left atomic.Int64 }

const (
	// roomForPatterns is in bytes. It suffices for some ten thousand ordinary patterns of 50
	// instructions.
	roomForPatterns = 64 << 20
	// perInstruction is the approximate size of an instruction in bytes.
	perInstruction = 100
)

// NewRoom returns a Room with its full budget.
func NewRoom() *Room {
	r := &Room{}
	r.left.Store(roomForPatterns)
	return r
}

// share is the part of a Room that one program uses.
type share struct {
	room  *Room
	taken atomic.Int64
}

// shareOf returns a program's share. The garbage collector returns it to the Room when the program
// is unreachable.
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

// instructions returns the number of instructions of an expression, or 0 if it does not compile.
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

// Cost is counted in steps of one pattern instruction on one byte, of about 10 ns each.
const (
	// cheap is the cost from which one check counts as costly: about two milliseconds.
	cheap = 200_000
	// MaxMatched is the maximum cost of all patterns and other checks of a resource, about three
	// seconds, because pattern matching cannot be interrupted. It suffices for patterns of 100
	// instructions on 2.6 MB.
	MaxMatched = 1 << 28
	// perNode is the cost of checking a value against one schema. There may be many branches per
	// value.
	perNode = 3
	// perValue is the cost of a comparison with an enum value.
	perValue = 8
	// perCompiled is the cost of compiling an instruction, about a microsecond.
	perCompiled = 100
	// bytesPerCost is the number of error bytes that are formatted at a cost of 1.
	bytesPerCost = 4
)

// spend adds to the cost and calls costly once the cost exceeds cheap.
func (c *checker) spend(n int) {
	c.spent += n
	if c.spent >= cheap && c.costly != nil {
		c.costly()
		c.costly = nil
	}
}

// mayMatch reports whether n fits into the remaining budget, and spends it.
func (c *checker) mayMatch(n int) bool {
	if n > c.program.most-c.spent {
		return false
	}
	c.spend(n)
	return true
}

// compiled returns a compiled pattern, or nil if the remaining budget is too small to compile it.
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

// hasFormat reports whether a text has a format. Times in the common form have a fast path because
// the general check takes microseconds.
func hasFormat(format, text string) bool {
	if (format == "date-time" || format == "datetime") && isPlainTime(text) {
		return true
	}
	return strfmt.Default.Validates(format, text)
}

// isPlainTime reports whether a text is a time such as 2006-01-02T15:04:05Z. It returns false for
// days and times that may not exist.
func isPlainTime(s string) bool {
	const form = "0000-00-00T00:00:00Z"
	if len(s) != len(form) {
		return false
	}
	for i := range len(form) {
		if form[i] == '0' {
			if s[i] < '0' || s[i] > '9' {
				return false
			}
		} else if s[i] != form[i] {
			return false
		}
	}
	two := func(i int) int { return int(s[i]-'0')*10 + int(s[i+1]-'0') }
	month, day := two(5), two(8)
	return month >= 1 && month <= 12 && day >= 1 && day <= 28 && two(11) < 24 && two(14) < 60 && two(17) < 60
}
