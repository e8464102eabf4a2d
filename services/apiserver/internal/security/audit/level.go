package audit

import "slices"

// Level is how much is told of a request; each has all that those before it have.
type Level uint8

// The levels.
const (
	None Level = iota
	Metadata
	Request
	RequestResponse
)

var levelNames = [...]string{"None", "Metadata", "Request", "RequestResponse"}

// Levels are the names of all levels, in order.
func Levels() []string { return levelNames[:] }

// ParseLevel finds a level by its name.
func ParseLevel(name string) (Level, bool) {
	i := slices.Index(Levels(), name)
	return Level(max(i, 0)), i >= 0
}

func (l Level) String() string { return levelNames[l] }

// Stage is a point of a request's life at which it is told of.
type Stage uint8

// The stages.
const (
	RequestReceived Stage = iota
	ResponseStarted       // of long-running requests, and of those that nobody was let in for
	ResponseComplete
	Panic
)

var stageNames = [...]string{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}

// Stages are the names of all stages, in order.
func Stages() []string { return stageNames[:] }

// ParseStage finds a stage by its name.
func ParseStage(name string) (Stage, bool) {
	i := slices.Index(Stages(), name)
	return Stage(max(i, 0)), i >= 0
}

func (s Stage) String() string { return stageNames[s] }

// StageSet is a set of stages.
type StageSet uint8

// SetOf stages.
func SetOf(stages ...Stage) (s StageSet) {
	for _, x := range stages {
		s |= 1 << x
	}
	return s
}

// Has tells whether a stage is in the set.
func (s StageSet) Has(x Stage) bool { return s&(1<<x) != 0 }
