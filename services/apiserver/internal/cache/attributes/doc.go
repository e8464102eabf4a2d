// Package attributes holds the labels and fields of objects compactly, and matches selectors on
// them.
package attributes
