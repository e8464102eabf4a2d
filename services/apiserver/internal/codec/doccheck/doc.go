// Package doccheck rejects documents of clients, and stored values, before they are decoded. It
// knows the types of a scheme, but no kinds.
//
//   - Bounds of depth, lists, values and names (bounds.go for JSON and YAML, message.go for
//     protobuf).
//   - The memory of decoded lists (listsize.go).
//   - Values that one encoding can express and another cannot: such a value would be stored and
//     then fail every list and watch of its resource (values.go).
//   - Stored messages that cannot be served (storedcheck.go).
package doccheck
