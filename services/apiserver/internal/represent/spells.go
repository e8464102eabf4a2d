package represent

import "context"

// Spells are the turns of work that looks at much before there is anything to write. What is done before
// the first pause needs none. Its methods are for one goroutine at a time; nil has no spells to end.
type Spells struct {
	turns Turns
	ctx   context.Context
	works bool // has a turn
	err   error
}

// Spells of a request, that end with ctx. End ends the last one.
func (a *Answers) Spells(ctx context.Context) *Spells { return &Spells{turns: a.Turns, ctx: ctx} }

// Pause lets others work, and waits for a turn to go on; false when there is none in time, as Err tells.
func (s *Spells) Pause() bool {
	s.End()
	if s == nil || s.turns == nil {
		return true
	}
	s.err = inTime(s.turns.Enter(s.ctx))
	s.works = s.err == nil
	return s.works
}

// Err is why there was no turn; nil if there always was.
func (s *Spells) Err() error {
	if s == nil {
		return nil
	}
	return s.err
}

// End gives the turn back.
func (s *Spells) End() {
	if s != nil && s.works {
		s.works = false
		s.turns.Leave()
	}
}
