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
	// patternOfNames is the length of the longest regular expression of a named format.
	patternOfNames = 128
	// sizeOfFormat is the length of the longest name of a format.
	sizeOfFormat = 64
	// Sizes of network addresses in bytes.
	shortAddress, longAddress = 4, 16
)

// class says how the cost of a function depends on its arguments.
type class uint8

const (
	unknownClass class = iota
	constantCost       // costs 1
	readsText          // reads its text once
	rewrites           // reads its text and writes another
	canonical          // reads its text and writes it again
	traverses          // reads each element of a list, or a text
	searchCalls        // matches a regular expression against a text
	joinCalls
	containsIP
	containsCIDR
	validates
	authorizes // costs so much that one expression can check at most twice
)

// authorizeCost is the cost of one authorization check.
const authorizeCost = 350_000

var classes = map[string]class{
	"isSorted": traverses, "sum": traverses, "max": traverses, "min": traverses, "indexOf": traverses, "lastIndexOf": traverses,
	"url": readsText, "lowerAscii": readsText, "upperAscii": readsText, "substring": readsText, "trim": readsText,
	"replace": rewrites, "split": rewrites, "join": joinCalls, "find": searchCalls, "findAll": searchCalls,
	"cidr": readsText, "isIP": readsText, "isCIDR": readsText, "ip": readsText, "quantity": readsText, "isQuantity": readsText,
	"semver": readsText, "isSemver": readsText, "major": constantCost, "minor": constantCost, "patch": constantCost,
	escapeKey:        readsText,
	"ip.isCanonical": canonical, "containsIP": containsIP, "containsCIDR": containsCIDR, "validate": validates,
	"masked": constantCost, "prefixLength": constantCost, "family": constantCost, "isUnspecified": constantCost, "isLoopback": constantCost,
	"isLinkLocalMulticast": constantCost, "isLinkLocalUnicast": constantCost, "isGlobalUnicast": constantCost, "format.named": constantCost,
	"sign": constantCost, "asInteger": constantCost, "isInteger": constantCost, "asApproximateFloat": constantCost, "isGreaterThan": constantCost,
	"isLessThan": constantCost, "compareTo": constantCost, "add": constantCost, "sub": constantCost,
	"path": constantCost, "group": constantCost, "serviceAccount": constantCost, "resource": constantCost, "subresource": constantCost, "namespace": constantCost, "name": constantCost,
	"allowed": constantCost, "reason": constantCost, "error": constantCost, "errored": constantCost, "check": authorizes,
	"getScheme": constantCost, "getHostname": constantCost, "getHost": constantCost, "getPort": constantCost, "getEscapedPath": constantCost, "getQuery": constantCost,
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
	if c := classes[function]; c != unknownClass && c != constantCost {
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
	c := classes[function]
	switch {
	case function == "_==_" && len(args) == 2 && isScalar(args[0]), c == constantCost, overload == "cidr_ip":
		cost = 1
	case c == authorizes:
		cost = authorizeCost
	case overload == "list_sets_contains_list", overload == "list_sets_intersects_list":
		return setsCost(args, 1)
	case overload == "list_sets_equivalent_list":
		return setsCost(args, 2)
	case c == unknownClass || len(args) == 0:
		return 0, false
	case c == traverses:
		cost = traversal(args[0])
	case c == readsText:
		cost = scaledBy(sizeOf(args[0]), common.StringTraversalCostFactor)
	case c == rewrites, c == canonical:
		cost = scaledBy(sizeOf(args[0]), 2*common.StringTraversalCostFactor)
	case c == joinCalls:
		cost = scaledBy(sizeOf(result), 2*common.StringTraversalCostFactor)
	case len(args) < 2:
		return 0, false
	case c == searchCalls:
		cost = scaledBy(1+sizeOf(args[0]), common.StringTraversalCostFactor) * scaledBy(sizeOf(args[1]), common.RegexStringLengthCostFactor)
	case c == containsIP:
		cost = scaledBy(2*sizeOf(args[0]), common.StringTraversalCostFactor)
		if overload == "cidr_contains_ip_string" {
			cost += scaledBy(sizeOf(args[1]), common.StringTraversalCostFactor)
		}
	case c == containsCIDR:
		cost = scaledBy(2*sizeOf(args[0]), common.StringTraversalCostFactor) + scaledBy(sizeOf(args[0]), common.StringTraversalCostFactor) + 1
		if overload == "cidr_contains_cidr_string" {
			cost += scaledBy(sizeOf(args[1]), common.StringTraversalCostFactor)
		}
	case c == validates:
		f, ok := args[0].(*format)
		if !ok {
			return 0, false
		}
		cost = scaledBy(1+sizeOf(args[1]), common.StringTraversalCostFactor) * scaledBy(uint64(f.patternLength), common.RegexStringLengthCostFactor)
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
func isScalar(v ref.Val) bool {
	switch v.(type) {
	case *quantity, *address, *network, *format, *webAddress:
		return true
	}
	return false
}

func scaledBy(size uint64, factor float64) uint64 { return uint64(math.Ceil(float64(size) * factor)) }

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

// traversal returns the cost of reading a value with all its elements.
func traversal(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(float64(len(v)) * common.StringTraversalCostFactor)
	case types.Bytes:
		return uint64(float64(len(v)) * common.StringTraversalCostFactor)
	case traits.Lister:
		var cost uint64
		for it := v.Iterator(); it.HasNext() == types.True; {
			cost += traversal(it.Next())
		}
		return cost
	case traits.Mapper:
		var cost uint64
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			cost += traversal(key) + traversal(v.Get(key))
		}
		return cost
	}
	return 1
}

// CostSum counts the cost of several expressions together. It is safe for concurrent use.
type CostSum struct {
	mu         sync.Mutex // leaf lock
	remaining  uint64     // units until onExceeded is called
	onExceeded func()     // nil once called
}

// NewCostSum returns a CostSum that calls onExceeded once, when expressions have cost the given units.
// The goroutine that evaluates an expression calls it in the middle of the evaluation, which then
// continues.
func NewCostSum(units uint64, costly func()) *CostSum {
	return &CostSum{remaining: units, onExceeded: costly}
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
	costly := e.onExceeded
	e.onExceeded = nil
	e.mu.Unlock()
	if costly != nil {
		costly()
	}
}

// charge adds the cost of a finished evaluation.
func (e *CostSum) charge(units uint64) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remaining -= min(e.remaining, units)
}
