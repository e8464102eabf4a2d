package rules

import (
	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

const (
	// keptEnvs is how many environments a session keeps, of some 100 KiB each.
	keptEnvs = 64
	// keptText is how long the expressions are together of which it keeps what they were found to be.
	keptText = 16 << 10
)

// session compiles the rules of one definition, whose versions mostly have the same, and whose schemas have
// few types: what was made for one rule serves the next ones. It is for one goroutine.
type session struct {
	compiler *Compiler
	envs     map[envKey]*celenv.Env
	outcomes map[checkKey]outcome
	text     int // of outcomes
}

// envKey is the type of self, and whether oldSelf is an optional value.
type envKey struct {
	self     string
	optional bool
}

type checkKey struct {
	envKey
	expression string
	rule       bool // not a message
}

// outcome is what checking an expression gave.
type outcome struct {
	checked *checked
	problem problem
}

func (c *Compiler) session() *session {
	return &session{compiler: c, envs: map[envKey]*celenv.Env{}, outcomes: map[checkKey]outcome{}}
}

// env is where expressions over values of a type are checked. Equal types have one name.
func (s *session) env(self *decl, optional bool) (*celenv.Env, error) {
	key, old := envKey{self.cel.String(), optional}, self.cel
	if env := s.envs[key]; env != nil {
		return env, nil
	}
	if optional {
		old = cel.OptionalType(self.cel)
	}
	base, err := s.compiler.base()
	if err != nil {
		return nil, err
	}
	types := objects{}
	types.add(self)
	env, err := base.Extend(map[string]*cel.Type{selfName: self.cel, oldSelfName: old}, types)
	if err != nil {
		return nil, err
	}
	if len(s.envs) >= keptEnvs {
		clear(s.envs)
		clear(s.outcomes) // which have them too
		s.text = 0
	}
	s.envs[key] = env
	return env, nil
}

// keep remembers an outcome. Expressions that are all different would fill the memory, and nobody asks for
// them again.
func (s *session) keep(key checkKey, o outcome) {
	if s.text += len(key.expression); s.text > keptText {
		clear(s.outcomes)
		s.text = len(key.expression)
	}
	s.outcomes[key] = o
}
