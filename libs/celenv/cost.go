package celenv

import (
	"context"
	"math"
	"sync"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// SizeEstimator estimates the maximum sizes of the values of variables.
type SizeEstimator interface {
	// EstimateSize returns the size of the value at the element's path, or nil if it is unknown.
	EstimateSize(element checker.AstNode) *checker.SizeEstimate
}

// Costs estimates the actual and the maximum cost of the functions of this package. CEL estimates
// its own functions. The figures are those of Kubernetes, because they decide which rules a
// definition may have.
type Costs struct{ Sizes SizeEstimator }

const (
	// namedPatternLen is the length of the longest regular expression of a named format.
	namedPatternLen = 128
	// formatNameLen is the length of the longest name of a format.
	formatNameLen = 64
	// Sizes of network addresses in bytes.
	ipv4Bytes, ipv6Bytes = 4, 16
)

// costClass says how the cost of a function depends on its arguments.
type costClass uint8

const (
	costUnknown       costClass = iota
	costConstant                // costs 1
	costReadText                // reads its text once
	costRewriteText             // reads its text and writes another
	costCanonicalText           // reads its text and writes it again
	costTraverse                // reads each element of a list, or a text
	costSearch                  // matches a regular expression against a text
	costJoin
	costContainsIP
	costContainsCIDR
	costValidate
	costAuthorize // costs so much that one expression can check at most twice
)

// authorizeCost is the cost of one authorization check.
const authorizeCost = 350_000

var costClasses = map[string]costClass{
	"isSorted":    costTraverse,
	"sum":         costTraverse,
	"max":         costTraverse,
	"min":         costTraverse,
	"indexOf":     costTraverse,
	"lastIndexOf": costTraverse,
	"url":         costReadText,
	"lowerAscii":  costReadText,
	"upperAscii":  costReadText,
	"substring":   costReadText,
	"trim":        costReadText,
	"replace":     costRewriteText, "split": costRewriteText, "join": costJoin, "find": costSearch, "findAll": costSearch,
	"cidr":       costReadText,
	"isIP":       costReadText,
	"isCIDR":     costReadText,
	"ip":         costReadText,
	"quantity":   costReadText,
	"isQuantity": costReadText,
	"semver":     costReadText, "isSemver": costReadText, "major": costConstant, "minor": costConstant, "patch": costConstant,
	escapeKey:        costReadText,
	"ip.isCanonical": costCanonicalText, "containsIP": costContainsIP, "containsCIDR": costContainsCIDR, "validate": costValidate,
	"masked":               costConstant,
	"prefixLength":         costConstant,
	"family":               costConstant,
	"isUnspecified":        costConstant,
	"isLoopback":           costConstant,
	"isLinkLocalMulticast": costConstant,
	"isLinkLocalUnicast":   costConstant,
	"isGlobalUnicast":      costConstant,
	"format.named":         costConstant,
	"sign":                 costConstant,
	"asInteger":            costConstant,
	"isInteger":            costConstant,
	"asApproximateFloat":   costConstant,
	"isGreaterThan":        costConstant,
	"isLessThan":           costConstant, "compareTo": costConstant, "add": costConstant, "sub": costConstant,
	"path":           costConstant,
	"group":          costConstant,
	"serviceAccount": costConstant,
	"resource":       costConstant,
	"subresource":    costConstant,
	"namespace":      costConstant,
	"name":           costConstant,
	"allowed":        costConstant,
	"reason":         costConstant,
	"error":          costConstant,
	"errored":        costConstant,
	"check":          costAuthorize,
	"getScheme":      costConstant,
	"getHostname":    costConstant,
	"getHost":        costConstant,
	"getPort":        costConstant,
	"getEscapedPath": costConstant,
	"getQuery":       costConstant,
}

// CallCost implements interpreter.ActualCostEstimator.
func (Costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost, ok := callCost(function, overload, args, result)
	if !ok {
		return nil
	}
	return &cost
}

// dependsOnValues reports whether the cost of a call depends on its arguments or its result.
func dependsOnValues(function, overload string) bool {
	if c := costClasses[function]; c != costUnknown && c != costConstant {
		return true
	}
	switch overload {
	case "list_sets_contains_list", "list_sets_intersects_list", "list_sets_equivalent_list":
		return true
	}
	return function == "_==_" || standardDependsOnValues(overload)
}

// callCost returns the cost of a call of a function of this package. ok is false for CEL's own
// functions.
func callCost(function, overload string, args []ref.Val, result ref.Val) (cost uint64, ok bool) {
	class := costClasses[function]
	switch {
	case function == "_==_" && len(args) == 2 && isScalar(args[0]), class == costConstant, overload == "cidr_ip":
		cost = 1
	case class == costAuthorize:
		cost = authorizeCost
	case overload == "list_sets_contains_list", overload == "list_sets_intersects_list":
		return setsCost(args, 1)
	case overload == "list_sets_equivalent_list":
		return setsCost(args, 2)
	case class == costUnknown || len(args) == 0:
		return 0, false
	case class == costTraverse:
		cost = traversalCostOf(args[0])
	case class == costReadText:
		cost = scaleUp(sizeOf(args[0]), common.StringTraversalCostFactor)
	case class == costRewriteText, class == costCanonicalText:
		cost = scaleUp(sizeOf(args[0]), 2*common.StringTraversalCostFactor)
	case class == costJoin:
		cost = scaleUp(sizeOf(result), 2*common.StringTraversalCostFactor)
	case len(args) < 2:
		return 0, false
	case class == costSearch:
		cost = scaleUp(1+sizeOf(args[0]), common.StringTraversalCostFactor) * scaleUp(sizeOf(args[1]),
			common.RegexStringLengthCostFactor)
	case class == costContainsIP:
		cost = scaleUp(2*sizeOf(args[0]), common.StringTraversalCostFactor)
		if overload == "cidr_contains_ip_string" {
			cost += scaleUp(sizeOf(args[1]), common.StringTraversalCostFactor)
		}
	case class == costContainsCIDR:
		cost = scaleUp(2*sizeOf(args[0]), common.StringTraversalCostFactor) + scaleUp(sizeOf(args[0]),
			common.StringTraversalCostFactor) + 1
		if overload == "cidr_contains_cidr_string" {
			cost += scaleUp(sizeOf(args[1]), common.StringTraversalCostFactor)
		}
	case class == costValidate:
		f, ok := args[0].(*format)
		if !ok {
			return 0, false
		}
		cost = scaleUp(1+sizeOf(args[1]), common.StringTraversalCostFactor) * scaleUp(uint64(f.patternLength),
			common.RegexStringLengthCostFactor)
	}
	return cost, true
}

// setsCost returns the cost of comparing each element of one list with each element of the other.
func setsCost(args []ref.Val, times uint64) (uint64, bool) {
	if len(args) != 2 {
		return 0, false
	}
	return 1 + sizeOf(args[0])*sizeOf(args[1])*times, true
}

// isScalar reports whether a value has a type of this package that compares in constant time.
func isScalar(value ref.Val) bool {
	switch value.(type) {
	case *quantity, *address, *network, *format, *webAddress:
		return true
	}
	return false
}

func scaleUp(size uint64, factor float64) uint64 { return uint64(math.Ceil(float64(size) * factor)) }

// sizeOf returns the size of a value in characters or elements, or 1.
func sizeOf(v ref.Val) uint64 {
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

// traversalCostOf returns the cost of reading a value with all its elements.
func traversalCostOf(value ref.Val) uint64 {
	switch value := value.(type) {
	case types.String:
		return uint64(float64(len(value)) * common.StringTraversalCostFactor)
	case types.Bytes:
		return uint64(float64(len(value)) * common.StringTraversalCostFactor)
	case traits.Lister:
		var cost uint64
		for it := value.Iterator(); it.HasNext() == types.True; {
			cost += traversalCostOf(it.Next())
		}
		return cost
	case traits.Mapper:
		var cost uint64
		for it := value.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			cost += traversalCostOf(key) + traversalCostOf(value.Get(key))
		}
		return cost
	}
	return 1
}

// CostSum adds up the cost of several expressions. It is safe for concurrent use.
type CostSum struct {
	mu         sync.Mutex // leaf lock
	remaining  uint64     // units until onExceeded is called
	onExceeded func()     // nil once called
}

// NewCostSum returns a CostSum that calls onExceeded once, when expressions have cost the given
// units. The goroutine that evaluates an expression calls it in the middle of the evaluation, which
// then continues.
func NewCostSum(units uint64, onExceeded func()) *CostSum {
	return &CostSum{remaining: units, onExceeded: onExceeded}
}

// costSumKey is the context key of a CostSum.
type costSumKey struct{}

// NewContext returns a context in which the CostSum counts all evaluations.
func (e *CostSum) NewContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, costSumKey{}, e)
}

func costSumFrom(ctx context.Context) *CostSum {
	e, _ := ctx.Value(costSumKey{}).(*CostSum)
	return e
}

// threshold returns the cost of an evaluation at which the sum is exceeded.
func (e *CostSum) threshold() uint64 {
	if e == nil {
		return math.MaxUint64
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.onExceeded == nil {
		return math.MaxUint64
	}
	return e.remaining
}

// reportExceeded calls onExceeded unless it was called before.
func (e *CostSum) reportExceeded() {
	e.mu.Lock()
	onExceeded := e.onExceeded
	e.onExceeded = nil
	e.mu.Unlock()
	if onExceeded != nil {
		onExceeded()
	}
}

// add adds the cost of a finished evaluation.
func (e *CostSum) add(units uint64) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remaining -= min(e.remaining, units)
}
