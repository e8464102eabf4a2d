package rules

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

// Names of variables in rules.
const (
	selfName    = "self"
	oldSelfName = "oldSelf"
)

// Compiler compiles rules. Equal expressions share a program while any of them is in use.
type Compiler struct {
	// Metrics may be nil. It must be set before the first compilation.
	Metrics *Metrics
	// NoRatcheting also reports errors in unchanged values, and skips rules with optionalOldSelf if
	// there is no old value (gate CRDValidationRatcheting off). It must be set before the first
	// compilation.
	NoRatcheting bool
	base         func() (*celenv.BaseEnv, error)

	mu        sync.Mutex // guards only shared
	shared    map[string]weak.Pointer[program]
	sweepSize int // number of entries of shared at which unused ones are removed
}

// NewCompiler returns a compiler. One per server is enough.
func NewCompiler() *Compiler {
	return &Compiler{base: sync.OnceValues(celenv.NewBaseEnv), shared: map[string]weak.Pointer[program]{}, sweepSize: 256}
}

// program is a compiled expression.
type program struct {
	runner      *celenv.Runner
	usesOldSelf bool
}

// scope compiles the rules of one schema. self is the type of its values.
type scope struct {
	*session
	self *decl
}

// problem is a compilation error in Kubernetes' words, or "" for none.
type problem string

// checkedExpr is a type-checked expression.
type checkedExpr struct {
	env         *celenv.Env
	ast         *cel.Ast
	usesOldSelf bool
}

// typeCheck parses and type-checks an expression, which must have the expected type. optional
// states that oldSelf is an optional value. Compilation errors start with prefix. Results are
// cached.
func (s *scope) typeCheck(expression string, optional bool, expected *cel.Type, prefix string) (*checkedExpr, problem) {
	key := typeCheckKey{envKey{s.self.celType.String(), optional}, expression, expected == cel.BoolType}
	if known, ok := s.outcomes[key]; ok {
		return known.checked, known.problem
	}
	c, wrong := s.compileAndCheck(expression, optional, expected, prefix)
	s.cache(key, outcome{c, wrong})
	return c, wrong
}

// compileAndCheck compiles and checks an expression like typeCheck, without the cache.
func (s *scope) compileAndCheck(expression string, optional bool, expected *cel.Type, prefix string) (*checkedExpr, problem) {
	env, err := s.env(s.self, optional)
	if err != nil {
		return nil, problem(err.Error())
	}
	ast, issues := env.Check(expression)
	if issues.Err() != nil {
		return nil, problem(prefix + "compilation failed: " + issues.String())
	}
	if !ast.OutputType().IsExactType(expected) {
		if expected == cel.BoolType {
			return nil, "cel expression must evaluate to a bool"
		}
		return nil, "messageExpression must evaluate to a string"
	}
	c := &checkedExpr{env: env, ast: ast}
	for _, r := range ast.NativeRep().ReferenceMap() {
		c.usesOldSelf = c.usesOldSelf || r.Name == oldSelfName
	}
	return c, ""
}

// cost returns the estimated maximum cost of an expression.
func (s *scope) cost(c *checkedExpr) (uint64, error) {
	return c.env.Estimate(c.ast, sizeEstimator{self: s.self})
}

// compileProgram returns the program of an expression. Equal expressions share one.
func (s *scope) compileProgram(expression string, optional bool, expected *cel.Type) (*program, error) {
	key := fmt.Sprintf("%t %s %s\n%s", optional, expected, s.self.celType, expression)
	if p := s.compiler.findShared(key); p != nil {
		return p, nil
	}
	defer s.compiler.Metrics.observeCompilation(time.Now())
	checked, problem := s.compileAndCheck(expression, optional, expected, "")
	if problem != "" {
		return nil, fmt.Errorf("%s", problem)
	}
	run, err := checked.env.Runner(checked.ast)
	if err != nil {
		return nil, err
	}
	return s.compiler.addShared(key, &program{runner: run, usesOldSelf: checked.usesOldSelf}), nil
}

// findShared returns the shared program of an expression, or nil.
func (c *Compiler) findShared(key string) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shared[key].Value()
}

// addShared adds a compiled program to the shared programs. It returns the program to use, which is another one if
// an equal expression was compiled at the same time.
func (c *Compiler) addShared(key string, compiled *program) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.shared[key].Value(); other != nil {
		return other
	}
	if len(c.shared) >= c.sweepSize {
		for k, w := range c.shared {
			if w.Value() == nil {
				delete(c.shared, k)
			}
		}
		c.sweepSize = 2*len(c.shared) + 256
	}
	c.shared[strings.Clone(key)] = weak.Make(compiled)
	return compiled
}
