package celenv

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"
)

// Native returns CEL's own program for an expression, with the same settings.
func Native(e *Env, checked *cel.Ast) (cel.Program, error) {
	return e.env.Program(checked,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostTracking(Costs{}),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		cel.CostLimit(PerCallLimit),
		cel.InterruptCheckFrequency(interruptEvery),
	)
}
