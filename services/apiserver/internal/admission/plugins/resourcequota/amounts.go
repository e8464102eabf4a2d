package resourcequota

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

type (
	amounts = corev1.ResourceList
	names   = []corev1.ResourceName
)

// one returns the quantity 1.
func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

// plus returns a + b.
func plus(a, b amounts) amounts {
	sum := make(amounts, len(a))
	for name, q := range a {
		sum[name] = q.DeepCopy()
	}
	for name, q := range b {
		total, ok := sum[name]
		if !ok {
			total = resource.Quantity{Format: q.Format}
		}
		total.Add(q)
		sum[name] = total
	}
	return sum
}

// minus returns the positive amounts of a - b.
func minus(a, b amounts) amounts {
	rest := amounts{}
	for name, q := range a {
		left := q.DeepCopy()
		left.Sub(b[name])
		if left.Sign() > 0 {
			rest[name] = left
		}
	}
	return rest
}

// only returns the amounts of a whose names are in keep.
func only(a amounts, keep amounts) amounts {
	part := amounts{}
	for name, q := range a {
		if _, ok := keep[name]; ok {
			part[name] = q
		}
	}
	return part
}

// text formats amounts sorted by name, for messages.
func text(a amounts) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		q := a[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// list formats names in order, for messages.
func list(n names) string {
	var parts []string
	for _, name := range slices.Sorted(slices.Values(n)) {
		parts = append(parts, string(name))
	}
	return strings.Join(parts, ",")
}

// pick returns the sorted names of a for which f returns true.
func pick(a amounts, f func(corev1.ResourceName) bool) names {
	var picked names
	for name := range a {
		if f(name) {
			picked = append(picked, name)
		}
	}
	slices.Sort(picked)
	return picked
}
