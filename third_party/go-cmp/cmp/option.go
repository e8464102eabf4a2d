package cmp

import "reflect"

// k8s.io/apimachinery/pkg/util/diff refers to these declarations in an option for tests.
type (
	// Option is an option of go-cmp.
	Option any
	// Options is a list of options.
	Options []Option
	// Path is the path to a value.
	Path []PathStep
	// PathStep is a step of a path.
	PathStep interface {
		Values() (x, y reflect.Value)
	}
	// MapIndex is the step to an entry of a map.
	MapIndex struct{}
)

// Values implements PathStep.
func (MapIndex) Values() (x, y reflect.Value) { return x, y }

// Last returns the last step.
func (p Path) Last() PathStep { return p[len(p)-1] }

// FilterPath panics, because options are not supported.
func FilterPath(func(Path) bool, Option) Option { panic("go-cmp: options are not supported") }

// Ignore panics, because options are not supported.
func Ignore() Option { panic("go-cmp: options are not supported") }
