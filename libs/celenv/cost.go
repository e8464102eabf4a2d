package celenv

import (
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

const (
	// A regular expression costs in proportion to its own length and to that
	// of the text that it reads.
	patternCostFactor = 0.25
	textCostFactor    = 0.1
)

// libraryCost says what the functions of this package cost; CEL knows its own.
type libraryCost struct{}

// CallCost implements interpreter.ActualCostEstimator.
func (libraryCost) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	switch function {
	case "find", "findAll":
		if len(args) < 2 {
			return nil
		}
		text := math.Ceil(float64(1+size(args[0])) * textCostFactor)
		pattern := math.Ceil(float64(size(args[1])) * patternCostFactor)
		cost := uint64(text * pattern)
		return &cost
	case "isSorted", "min", "max", "sum", "indexOf", "lastIndexOf":
		// The functions of strings by these names are dearer in no case.
		if len(args) == 0 {
			return nil
		}
		cost := 1 + size(args[0])
		return &cost
	}
	return nil
}

func size(v ref.Val) uint64 {
	s, ok := v.(traits.Sizer)
	if !ok {
		return 1
	}
	n, ok := s.Size().(types.Int)
	if !ok || n < 0 {
		return 1
	}
	return uint64(n)
}
