// Package cmp replaces the part of github.com/google/go-cmp that etcd and client-go use for debugging
// checks, which are off by default. go-cmp calls methods by numbers that are not constant, so the
// linker keeps all exported methods of a program that contains it. This package does not.
package cmp

import (
	"fmt"
	"reflect"
)

// Equal reports whether two values are deeply equal.
func Equal(x, y any, _ ...Option) bool { return reflect.DeepEqual(x, y) }

// Diff returns both values, or "" if they are deeply equal.
func Diff(x, y any, _ ...Option) string {
	if reflect.DeepEqual(x, y) {
		return ""
	}
	return fmt.Sprintf("- %+v\n+ %+v\n", x, y)
}
