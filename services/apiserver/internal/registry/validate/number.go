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

// CheckNonNegative requires a number of at least zero.
func (f Field) CheckNonNegative(name string, n int64) {
	if n < 0 {
		f.Invalid(name, n, Negative)
	}
}

// OptionalNonNegative requires that a number is not negative, if it is set.
func OptionalNonNegative[T Integer](f Field, name string, n *T) {
	if n != nil {
		f.CheckNonNegative(name, int64(*n))
	}
}

// InRange requires a number from lo to hi.
func InRange[T Integer](f Field, name string, n T, lo, hi int) {
	if int64(n) < int64(lo) || int64(n) > int64(hi) {
		f.Invalid(name, n, content.InclusiveRangeError(lo, hi))
	}
}

// AtMost requires a number that does not exceed another one, which the message names: "cannot be
// greater than readyReplicas".
func AtMost[T Integer](f Field, name string, n, maximum T, other string) {
	if n > maximum {
		f.Invalid(name, n, "cannot be greater than "+other)
	}
}

// CheckFileMode requires permission bits.
func (f Field) CheckFileMode(name string, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > maxFileMode) {
		f.Invalid(name, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

// CheckOctet requires a number from 0 to 255.
func (f Field) CheckOctet(name string, n int32) { InRange(f, name, n, 0, maxOctet) }

// CheckPartition requires the number of a disk partition, or zero. As in Kubernetes, the message is
// not exact.
func (f Field) CheckPartition(name string, n int32) {
	if n < 0 || n > maxOctet {
		f.Invalid(name, n, content.InclusiveRangeError(1, maxOctet))
	}
}

// CheckUserID requires a valid user ID.
func (f Field) CheckUserID(name string, id *int64) {
	if id != nil {
		f.InvalidMessages(name, *id, content.IsValidUserID(*id))
	}
}

// CheckGroupID requires a valid group ID.
func (f Field) CheckGroupID(name string, id *int64) {
	if id != nil {
		f.InvalidMessages(name, *id, content.IsValidGroupID(*id))
	}
}

// CheckGroupIDs requires valid group IDs.
func (f Field) CheckGroupIDs(name string, ids []int64) {
	for i := range ids {
		if msgs := content.IsValidGroupID(ids[i]); len(msgs) > 0 {
			f.Index(name, i).InvalidMessages("", ids[i], msgs)
		}
	}
}

// PortNumber returns the errors of a port number.
func PortNumber(n int32) []string { return content.IsValidPortNum(int(n)) }

// CheckPort requires a port number.
func (f Field) CheckPort(name string, n int32) {
	f.InvalidMessages(name, n, content.IsValidPortNum(int(n)))
}

// CheckPortOrName requires a port number or name.
func (f Field) CheckPortOrName(name string, port intstr.IntOrString) {
	if port.Type == intstr.String {
		f.CheckText(name, port.StrVal, PortName)
		return
	}
	f.InvalidMessages(name, int(port.IntVal), content.IsValidPortNum(int(port.IntVal)))
}

// CheckNonNegativeIntOrPercent requires a non-negative number, or a percentage.
func (f Field) CheckNonNegativeIntOrPercent(name string, value intstr.IntOrString) {
	switch value.Type {
	case intstr.String:
		f.InvalidMessages(name, value, content.IsValidPercent(value.StrVal))
	case intstr.Int:
		f.CheckNonNegative(name, int64(value.IntVal))
	default:
		f.Invalid(name, value, "must be an integer or percentage (e.g '5%%')")
	}
}

// CheckAtMost100Percent requires a percentage of at most 100. It ignores numbers.
func (f Field) CheckAtMost100Percent(name string, value intstr.IntOrString) {
	if value.Type != intstr.String || len(content.IsValidPercent(value.StrVal)) > 0 {
		return
	}
	var percent int
	if _, err := fmt.Sscanf(value.StrVal, "%d%%", &percent); err == nil && percent > 100 {
		f.Invalid(name, value, "must not be greater than 100%")
	}
}

// Quantity is a quantity of a resource.
type Quantity = resource.Quantity

// EachQuantity applies rules to the quantities in a field, ordered by resource name.
func EachQuantity[K ~string](f Field, name string, list map[K]resource.Quantity, rules func(Field, K, Quantity)) {
	EachKey(f, name, list, rules)
}

// CheckBasicQuantity requires a non-negative amount, with the message of older rules.
func (f Field) CheckBasicQuantity(name string, q resource.Quantity) {
	if q.Sign() < 0 && q.Value() < 0 {
		f.Invalid(name, q.Value(), "must be a valid resource quantity")
	}
}

// CheckNonNegativeQuantity requires a quantity of at least zero.
func (f Field) CheckNonNegativeQuantity(name string, q resource.Quantity) {
	if q.Sign() < 0 {
		f.Invalid(name, q.String(), Negative)
	}
}

// CheckPositiveQuantity requires a quantity above zero.
func (f Field) CheckPositiveQuantity(name string, q resource.Quantity) {
	if q.Sign() <= 0 {
		f.Invalid(name, q.String(), NotPositive)
	}
}

// CheckIntegerQuantity requires a quantity without a fraction.
func (f Field) CheckIntegerQuantity(name string, q resource.Quantity) {
	if q.MilliValue()%1000 != 0 {
		f.Invalid(name, q, NotInteger)
	}
}
