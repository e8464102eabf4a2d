package rules

import (
	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

const (
	// maxCachedEnvs is the number of environments that a session caches. Each takes about 100 KiB.
	maxCachedEnvs = 64
	// maxCachedText is the total length in bytes of the expressions whose outcomes a session
	// caches.
	maxCachedText = 16 << 10
)

// session compiles the rules of one definition. Its versions usually have the same rules, and its
// schemas have few types, so the session caches environments and outcomes. It is not safe for
// concurrent use.
type session struct {
	compiler   *Compiler
	envs       map[envKey]*celenv.Env
	outcomes   map[typeCheckKey]outcome
	cachedText int // total length of the expressions in outcomes
	budget     celenv.CheckBudget
}

// envKey is the type of self, and whether oldSelf is an optional value.
type envKey struct {
	self     string
	optional bool
}

// typeCheckKey identifies an expression within an environment.
type typeCheckKey struct {
	envKey
	expression string
	isRule     bool // false for a message
}

// outcome is the result of scope.typeCheck.
type outcome struct {
	checked *checkedExpr
	problem problem
}

// newSession returns a session with empty caches. The budget of the session bounds the type checks of
// all its expressions.
func (c *Compiler) newSession() *session {
	return &session{compiler: c, envs: map[envKey]*celenv.Env{}, outcomes: map[typeCheckKey]outcome{}}
}

// env returns the environment for expressions over values of a type. Equal types have one name.
func (s *session) env(self *decl, optional bool) (*celenv.Env, error) {
	key := envKey{self.celType.String(), optional}
	if env := s.envs[key]; env != nil {
		return env, nil
	}
	old := self.celType
	if optional {
		old = cel.OptionalType(self.celType)
	}
	base, err := s.compiler.base()
	if err != nil {
		return nil, err
	}
	types := objectTypes{}
	types.add(self)
	env, err := base.Extend(map[string]*cel.Type{selfName: self.celType, oldSelfName: old}, types)
	if err != nil {
		return nil, err
	}
	env = env.Within(&s.budget)
	if len(s.envs) >= maxCachedEnvs {
		clear(s.envs)
		clear(s.outcomes) // outcomes reference environments too
		s.cachedText = 0
	}
	s.envs[key] = env
	return env, nil
}

// cache caches an outcome. The cache is bounded because many different expressions, which are never
// looked up again, would exhaust memory.
func (s *session) cache(key typeCheckKey, o outcome) {
	s.cachedText += len(key.expression)
	if s.cachedText > maxCachedText {
		clear(s.outcomes)
		s.cachedText = len(key.expression)
	}
	s.outcomes[key] = o
}
