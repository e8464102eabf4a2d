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

// maxSharedPrograms is the number of programs that are cached for policies with equal expressions.
const maxSharedPrograms = 4096

// Programs compiles expressions of policies. Equal expressions are compiled once.
type Programs struct {
	compiler *Compiler
	shared   *lru.Cache[programKey, compiled]
}

// programKey holds everything that a program depends on.
type programKey struct {
	visible VariableSet
	// variables lists the variables of the policy, with their types.
	variables  string
	expression string
	expected   string
}

// compiled is the result of compiling an expression.
type compiled struct {
	program *celenv.Program
	err     error
}

// NewPrograms returns a cache of the compiler's programs.
func NewPrograms(c *Compiler) *Programs {
	cache, err := lru.New[programKey, compiled](maxSharedPrograms)
	if err != nil {
		panic(err) // the size is valid
	}
	return &Programs{c, cache}
}

// Scope holds the variables of one policy's expressions. It is not safe for concurrent use.
type Scope struct {
	programs *Programs
	policy   *Policy // built when a program is not in the cache
	// declarations lists the variables, cacheKeyParts their names and types.
	declarations  []declaration
	cacheKeyParts []string
}

// declaration is a variable of a policy.
type declaration struct {
	visible          VariableSet
	name, expression string
}

// Scope returns a scope without variables.
func (p *Programs) Scope() *Scope { return &Scope{programs: p} }

// Declare adds a variable. Expressions that are compiled later see it. A variable that does not
// compile fails when it is read.
func (s *Scope) Declare(visible VariableSet, name, expression string) (*celenv.Program, error) {
	program, err := s.compile(visible, expression, nil, "")
	t := cel.DynType
	if err == nil {
		t = variableType(program.OutputType())
	}
	s.declarations = append(s.declarations, declaration{visible, name, expression})
	if s.policy != nil {
		s.policy.fields[name] = t
	}
	s.cacheKeyParts = append(s.cacheKeyParts, name+" "+t.String())
	return program, err
}

// Compile compiles an expression that must have one of the expected types.
func (s *Scope) Compile(visible VariableSet, expression string, expected ...*cel.Type) (*celenv.Program, error) {
	names := make([]string, len(expected))
	for i, t := range expected {
		names[i] = t.String()
	}
	return s.compile(visible, expression, expected, strings.Join(names, " "))
}

// compile returns the program of an expression, shared with other policies that use the same
// variables.
func (s *Scope) compile(visible VariableSet, expression string, expected []*cel.Type, expectedNames string) (*celenv.Program, error) {
	key := programKey{
		visible:    visible,
		variables:  strings.Join(s.cacheKeyParts, "\n"),
		expression: expression,
		expected:   expectedNames,
	}
	if result, ok := s.programs.shared.Get(key); ok {
		return result.program, result.err
	}
	var result compiled
	var env *celenv.Env
	env, result.err = s.env(visible)
	if result.err == nil {
		_, result.err = check(env, expression, expected)
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
			_ = p.Declare(d.visible, d.name, d.expression) // Declare has returned the error before
		}
		s.policy = p
	}
	return s.policy.envs.get(visible)
}

// Variables returns the CEL object `variables` of a policy. Each of its fields is evaluated when it is
// first read.
func Variables(names []string, value func(name string) (ref.Val, error)) ref.Val {
	return celenv.NewLazy(variablesType, names, func(name string) ref.Val {
		v, err := value(name)
		if err != nil {
			return celtypes.NewErr("%s", fmt.Sprintf("composited variable %q fails to evaluate: %v", name, err))
		}
		return v
	})
}
