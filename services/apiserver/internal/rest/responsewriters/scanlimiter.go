package responsewriters

import "context"

// Spells limits work that reads many objects before it writes any. The work before the first Pause
// is not limited. Its methods may be called from one goroutine at a time. A nil Spells has no
// limit.
type Spells struct {
	turns Turns
	ctx   context.Context
	works bool // holds the limiter
	err   error
}

// Spells returns the Spells of a request, which end with ctx. End releases the limiter at the end.
func (a *Answers) Spells(ctx context.Context) *Spells { return &Spells{turns: a.Turns, ctx: ctx} }

// Pause releases the limiter and acquires it again. It returns false if it cannot be acquired in
// time; Err then returns the reason.
func (s *Spells) Pause() bool {
	s.End()
	if s == nil || s.turns == nil {
		return true
	}
	s.err = inTime(s.turns.Enter(s.ctx))
	s.works = s.err == nil
	return s.works
}

// Err returns the error of the last Pause, or nil.
func (s *Spells) Err() error {
	if s == nil {
		return nil
	}
	return s.err
}

// End releases the limiter.
func (s *Spells) End() {
	if s != nil && s.works {
		s.works = false
		s.turns.Leave()
	}
}
