package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

type (
	// Amounts holds usage or limits by the names of quotas.
	Amounts = corev1.ResourceList
	// Names lists names of quotas.
	Names = []corev1.ResourceName
)

// OneQuantity returns the quantity 1.
func OneQuantity() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

// Plus returns a + b.
func Plus(a, b Amounts) Amounts {
	sum := make(Amounts, len(a))
	for name, quantity := range a {
		sum[name] = quantity.DeepCopy()
	}
	for name, quantity := range b {
		total, ok := sum[name]
		if !ok {
			total = resource.Quantity{Format: quantity.Format}
		}
		total.Add(quantity)
		sum[name] = total
	}
	return sum
}

// Minus returns a - b without amounts that are zero or negative.
func Minus(a, b Amounts) Amounts {
	difference := Amounts{}
	for name, quantity := range a {
		amount := quantity.DeepCopy()
		amount.Sub(b[name])
		if amount.Sign() > 0 {
			difference[name] = amount
		}
	}
	return difference
}

// FilterNames returns the amounts of a whose names are in keep.
func FilterNames(a Amounts, keep Amounts) Amounts {
	selected := Amounts{}
	for name, quantity := range a {
		if _, ok := keep[name]; ok {
			selected[name] = quantity
		}
	}
	return selected
}

// SelectNames returns the sorted names of a for which f returns true.
func SelectNames(a Amounts, matches func(corev1.ResourceName) bool) Names {
	var picked Names
	for name := range a {
		if matches(name) {
			picked = append(picked, name)
		}
	}
	slices.Sort(picked)
	return picked
}
