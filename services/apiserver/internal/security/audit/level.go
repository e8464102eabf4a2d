package audit

import "slices"

// Level is how much is recorded of a request. Each level includes the ones before it.
type Level uint8

// The levels.
const (
	None Level = iota
	Metadata
	Request
	RequestResponse
)

var levelNames = [...]string{"None", "Metadata", "Request", "RequestResponse"}

// Levels returns the names of all levels, from the lowest to the highest.
func Levels() []string { return levelNames[:] }

// ParseLevel returns the level of a name.
func ParseLevel(name string) (Level, bool) {
	i := slices.Index(Levels(), name)
	return Level(max(i, 0)), i >= 0
}

func (l Level) String() string { return levelNames[l] }

// Stage is the stage of a request at which an event is emitted.
type Stage uint8

// The stages.
const (
	RequestReceived Stage = iota
	ResponseStarted       // only of long-running requests and of requests rejected before authentication
	ResponseComplete
	Panic
)

var stageNames = [...]string{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}

// Stages returns the names of all stages, in order.
func Stages() []string { return stageNames[:] }

// ParseStage returns the stage of a name.
func ParseStage(name string) (Stage, bool) {
	i := slices.Index(Stages(), name)
	return Stage(max(i, 0)), i >= 0
}

func (s Stage) String() string { return stageNames[s] }

// StageSet is a set of stages.
type StageSet uint8

// SetOf returns a set of stages.
func SetOf(stages ...Stage) (s StageSet) {
	for _, stage := range stages {
		s |= 1 << stage
	}
	return s
}

// Has reports whether a stage is in the set.
func (s StageSet) Has(stage Stage) bool { return s&(1<<stage) != 0 }
