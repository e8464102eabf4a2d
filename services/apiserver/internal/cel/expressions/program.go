package expressions

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	lru "github.com/hashicorp/golang-lru/v2"

	"binnacle/libs/celenv"
)

// maxSharedPrograms is the maximum number of cached programs.
const maxSharedPrograms = 4096

// Programs is an LRU cache of compiled expressions of policies. Equal expressions are compiled
// once. It is safe for concurrent use.
type Programs struct {
	compiler *Compiler
	shared   *lru.Cache[programKey, compileResult]
}

// programKey holds everything that a program depends on.
type programKey struct {
	visible VariableSet
	// variables lists the names and types of the declared variables, one per line.
	variables  string
	expression string
	// expected lists the accepted types of the expression.
	expected string
}

// compileResult is the result of compiling an expression: a program or an error.
type compileResult struct {
	program *celenv.Program
	err     error
}

// NewPrograms returns an empty cache of programs that c compiles.
func NewPrograms(c *Compiler) *Programs {
	cache, err := lru.New[programKey, compileResult](maxSharedPrograms)
	if err != nil {
		panic(err) // cannot happen, because the size is positive
	}
	return &Programs{compiler: c, shared: cache}
}

// Scope compiles the expressions of one policy, including its variables. It is not safe for
// concurrent use.
type Scope struct {
	programs *Programs
	// policy has the declared variables. It is nil until a program is not in the cache.
	policy *Policy
	// declarations lists the declared variables, and cacheKeyParts their names and types.
	declarations  []declaration
	cacheKeyParts []string
}

// declaration holds the arguments of Scope.Declare.
type declaration struct {
	visible          VariableSet
	name, expression string
}

// Scope returns a scope without variables.
func (p *Programs) Scope() *Scope { return &Scope{programs: p} }

// Declare adds the variable variables.<name> for expressions that are compiled later, and returns
// its program. If it does not compile, Declare returns the error, and the variable has a dynamic
// type.
func (s *Scope) Declare(visible VariableSet, name, expression string) (*celenv.Program, error) {
	program, err := s.compile(visible, expression, nil, "")
	goType := cel.DynType
	if err == nil {
		goType = variableType(program.OutputType())
	}
	s.declarations = append(s.declarations, declaration{visible: visible, name: name, expression: expression})
	if s.policy != nil {
		s.policy.variables[name] = goType
	}
	s.cacheKeyParts = append(s.cacheKeyParts, name+" "+goType.String())
	return program, err
}

// Compile compiles an expression, whose type must be one of expected. It may use the declared
// variables.
func (s *Scope) Compile(visible VariableSet, expression string, expected ...*cel.Type) (*celenv.Program, error) {
	names := make([]string, len(expected))
	for i, t := range expected {
		names[i] = t.String()
	}
	return s.compile(visible, expression, expected, strings.Join(names, " "))
}

// compile returns the program of an expression from the cache, or compiles it. Policies with the
// same variables share the program. expectedNames lists the names of expected.
func (s *Scope) compile(
	visible VariableSet,
	expression string,
	expected []*cel.Type,
	expectedNames string,
) (*celenv.Program, error) {
	key := programKey{
		visible:    visible,
		variables:  strings.Join(s.cacheKeyParts, "\n"),
		expression: expression,
		expected:   expectedNames,
	}
	if result, ok := s.programs.shared.Get(key); ok {
		return result.program, result.err
	}
	var result compileResult
	var env *celenv.Env
	env, result.err = s.env(visible)
	if result.err == nil {
		_, result.err = outputType(env, expression, expected)
		if result.err == nil {
			result.program, result.err = env.Compile(expression)
		}
	}
	s.programs.shared.Add(key, result)
	return result.program, result.err
}

// env returns the environment with the declared variables.
func (s *Scope) env(visible VariableSet) (*celenv.Env, error) {
	if len(s.declarations) == 0 {
		return s.programs.compiler.envs.get(visible)
	}
	if s.policy == nil {
		p := s.programs.compiler.Policy()
		for _, d := range s.declarations {
			_ = p.Declare(d.visible, d.name, d.expression) // Scope.Declare has returned the error
		}
		s.policy = p
	}
	return s.policy.envs.get(visible)
}

// Variables returns the value of the variable `variables`, an object with a field for each name.
// value evaluates a field when an expression first reads it.
func Variables(names []string, value func(name string) (ref.Val, error)) ref.Val {
	return celenv.NewLazy(variablesType, names, func(name string) ref.Val {
		celValue, err := value(name)
		if err != nil {
			return celtypes.NewErr("%s", fmt.Sprintf("composited variable %q fails to evaluate: %v", name, err))
		}
		return celValue
	})
}
