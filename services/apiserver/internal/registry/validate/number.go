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
func (p Path) NonNegative(name string, n int64) {
	if n < 0 {
		p.Invalid(name, n, Negative)
	}
}

// OptionalNonNegative is NonNegative for an optional number.
func OptionalNonNegative[T Integer](p Path, name string, n *T) {
	if n != nil {
		p.NonNegative(name, int64(*n))
	}
}

// InRange requires a number from lo to hi.
func InRange[T Integer](p Path, name string, n T, lo, hi int) {
	if int64(n) < int64(lo) || int64(n) > int64(hi) {
		p.Invalid(name, n, content.InclusiveRangeError(lo, hi))
	}
}

// AtMost requires a number that does not exceed another one, which the message names: "cannot be
// greater than readyReplicas".
func AtMost[T Integer](p Path, name string, n, maximum T, other string) {
	if n > maximum {
		p.Invalid(name, n, "cannot be greater than "+other)
	}
}

// FileMode requires permission bits.
func (p Path) FileMode(name string, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > maxFileMode) {
		p.Invalid(name, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

// Octet requires a number from 0 to 255.
func (p Path) Octet(name string, n int32) { InRange(p, name, n, 0, maxOctet) }

// Partition requires the number of a disk partition, or zero. As in Kubernetes, the message is not
// exact.
func (p Path) Partition(name string, n int32) {
	if n < 0 || n > maxOctet {
		p.Invalid(name, n, content.InclusiveRangeError(1, maxOctet))
	}
}

// UserID requires a valid user ID.
func (p Path) UserID(name string, id *int64) {
	if id != nil {
		p.InvalidMessages(name, *id, content.IsValidUserID(*id))
	}
}

// GroupID requires a valid group ID.
func (p Path) GroupID(name string, id *int64) {
	if id != nil {
		p.InvalidMessages(name, *id, content.IsValidGroupID(*id))
	}
}

// GroupIDs requires valid group IDs.
func (p Path) GroupIDs(name string, ids []int64) {
	for i := range ids {
		if msgs := content.IsValidGroupID(ids[i]); len(msgs) > 0 {
			p.Index(name, i).InvalidMessages("", ids[i], msgs)
		}
	}
}

// PortNumber returns the errors of a port number.
func PortNumber(n int32) []string { return content.IsValidPortNum(int(n)) }

// Port requires a port number.
func (p Path) Port(name string, n int32) { p.InvalidMessages(name, n, content.IsValidPortNum(int(n))) }

// PortOrName requires a port number or name.
func (p Path) PortOrName(name string, port intstr.IntOrString) {
	if port.Type == intstr.String {
		p.Text(name, port.StrVal, PortName)
		return
	}
	p.InvalidMessages(name, int(port.IntVal), content.IsValidPortNum(int(port.IntVal)))
}

// NonNegativeIntOrPercent requires a non-negative number, or a percentage.
func (p Path) NonNegativeIntOrPercent(name string, v intstr.IntOrString) {
	switch v.Type {
	case intstr.String:
		p.InvalidMessages(name, v, content.IsValidPercent(v.StrVal))
	case intstr.Int:
		p.NonNegative(name, int64(v.IntVal))
	default:
		p.Invalid(name, v, "must be an integer or percentage (e.g '5%%')")
	}
}

// NotMoreThan100Percent requires a percentage of at most 100. It ignores numbers.
func (p Path) NotMoreThan100Percent(name string, v intstr.IntOrString) {
	if v.Type != intstr.String || len(content.IsValidPercent(v.StrVal)) > 0 {
		return
	}
	var percent int
	if _, err := fmt.Sscanf(v.StrVal, "%d%%", &percent); err == nil && percent > 100 {
		p.Invalid(name, v, "must not be greater than 100%")
	}
}

// Quantity is a quantity of a resource.
type Quantity = resource.Quantity

// EachQuantity applies rules to the quantities in a field, ordered by resource name.
func EachQuantity[K ~string](p Path, name string, list map[K]resource.Quantity, rules func(Path, K, Quantity)) {
	EachKey(p, name, list, rules)
}

// BasicQuantity requires a non-negative amount, with the message of older rules.
func (p Path) BasicQuantity(name string, q resource.Quantity) {
	if q.Sign() < 0 && q.Value() < 0 {
		p.Invalid(name, q.Value(), "must be a valid resource quantity")
	}
}

// NonNegativeQuantity requires a quantity of at least zero.
func (p Path) NonNegativeQuantity(name string, q resource.Quantity) {
	if q.Sign() < 0 {
		p.Invalid(name, q.String(), Negative)
	}
}

// PositiveQuantity requires a quantity above zero.
func (p Path) PositiveQuantity(name string, q resource.Quantity) {
	if q.Sign() <= 0 {
		p.Invalid(name, q.String(), NotPositive)
	}
}

// IntegerQuantity requires a quantity without a fraction.
func (p Path) IntegerQuantity(name string, q resource.Quantity) {
	if q.MilliValue()%1000 != 0 {
		p.Invalid(name, q, NotInteger)
	}
}
