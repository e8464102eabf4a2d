package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	content "k8s.io/apimachinery/pkg/util/validation"
)

// Messages about numbers.
const (
	Negative    = "must be greater than or equal to 0"
	NotPositive = "must be greater than zero"
	NotInteger  = "must be an integer"
	maxOctet    = 255
	maxFileMode = 0o777
)

// Integer is any integer type of API objects.
type Integer interface{ ~int32 | ~int64 | ~int }

// NonNegative requires a number of at least zero.
func (a At) NonNegative(name string, n int64) {
	if n < 0 {
		a.Invalid(name, n, Negative)
	}
}

// OptionalNonNegative is NonNegative for an optional number.
func OptionalNonNegative[T Integer](a At, name string, n *T) {
	if n != nil {
		a.NonNegative(name, int64(*n))
	}
}

// InRange requires a number from lo to hi.
func InRange[T Integer](a At, name string, n T, lo, hi int) {
	if int64(n) < int64(lo) || int64(n) > int64(hi) {
		a.Invalid(name, n, content.InclusiveRangeError(lo, hi))
	}
}

// AtMost requires a number that does not exceed another one, which the message names: "cannot be
// greater than readyReplicas".
func AtMost[T Integer](a At, name string, n, maximum T, other string) {
	if n > maximum {
		a.Invalid(name, n, "cannot be greater than "+other)
	}
}

// FileMode requires permission bits.
func (a At) FileMode(name string, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > maxFileMode) {
		a.Invalid(name, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

// Octet requires a number from 0 to 255.
func (a At) Octet(name string, n int32) { InRange(a, name, n, 0, maxOctet) }

// Partition requires the number of a disk partition, or zero. As in Kubernetes, the message is not
// exact.
func (a At) Partition(name string, n int32) {
	if n < 0 || n > maxOctet {
		a.Invalid(name, n, content.InclusiveRangeError(1, maxOctet))
	}
}

// User requires a valid user ID.
func (a At) User(name string, id *int64) {
	if id != nil {
		a.Messages(name, *id, content.IsValidUserID(*id))
	}
}

// Group requires a valid group ID.
func (a At) Group(name string, id *int64) {
	if id != nil {
		a.Messages(name, *id, content.IsValidGroupID(*id))
	}
}

// Groups requires valid group IDs.
func (a At) Groups(name string, ids []int64) {
	for i := range ids {
		if msgs := content.IsValidGroupID(ids[i]); len(msgs) > 0 {
			a.Index(name, i).Messages("", ids[i], msgs)
		}
	}
}

// PortNumber returns the errors of a port number.
func PortNumber(n int32) []string { return content.IsValidPortNum(int(n)) }

// Port requires a port number.
func (a At) Port(name string, n int32) { a.Messages(name, n, content.IsValidPortNum(int(n))) }

// PortOrName requires a port number or name.
func (a At) PortOrName(name string, p intstr.IntOrString) {
	if p.Type == intstr.String {
		a.Text(name, p.StrVal, PortName)
		return
	}
	a.Messages(name, int(p.IntVal), content.IsValidPortNum(int(p.IntVal)))
}

// CountOrPercent requires a non-negative number, or a percentage.
func (a At) CountOrPercent(name string, v intstr.IntOrString) {
	switch v.Type {
	case intstr.String:
		a.Messages(name, v, content.IsValidPercent(v.StrVal))
	case intstr.Int:
		a.NonNegative(name, int64(v.IntVal))
	default:
		a.Invalid(name, v, "must be an integer or percentage (e.g '5%%')")
	}
}

// AtMostWhole requires a percentage of at most 100. It ignores numbers.
func (a At) AtMostWhole(name string, v intstr.IntOrString) {
	if v.Type != intstr.String || len(content.IsValidPercent(v.StrVal)) > 0 {
		return
	}
	var percent int
	if _, err := fmt.Sscanf(v.StrVal, "%d%%", &percent); err == nil && percent > 100 {
		a.Invalid(name, v, "must not be greater than 100%")
	}
}

// Quantity is a quantity of a resource.
type Quantity = resource.Quantity

// EachQuantity applies rules to the quantities in a field, ordered by resource name.
func EachQuantity[K ~string](a At, name string, list map[K]resource.Quantity, rules func(At, K, Quantity)) {
	EachKey(a, name, list, rules)
}

// BasicQuantity requires a non-negative amount, with the message of older rules.
func (a At) BasicQuantity(name string, q resource.Quantity) {
	if q.Sign() < 0 && q.Value() < 0 {
		a.Invalid(name, q.Value(), "must be a valid resource quantity")
	}
}

// NonNegativeQuantity requires a quantity of at least zero.
func (a At) NonNegativeQuantity(name string, q resource.Quantity) {
	if q.Sign() < 0 {
		a.Invalid(name, q.String(), Negative)
	}
}

// PositiveQuantity requires a quantity above zero.
func (a At) PositiveQuantity(name string, q resource.Quantity) {
	if q.Sign() <= 0 {
		a.Invalid(name, q.String(), NotPositive)
	}
}

// WholeQuantity requires a quantity without a fraction.
func (a At) WholeQuantity(name string, q resource.Quantity) {
	if q.MilliValue()%1000 != 0 {
		a.Invalid(name, q, NotInteger)
	}
}
