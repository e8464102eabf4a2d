// Package apitype implements the methods that a Go struct needs to be an API type: a protobuf form
// that is byte for byte the one of Kubernetes' generated code, and deep copies. Both use reflection
// on the struct's definition (its `protobuf:"…"` tags), so no code is generated.
//
// It keeps no state except a cache per type. The types of registry/apis call it from their methods
// Marshal, Size, Unmarshal and DeepCopyObject, one line each. Types of other modules inside such a
// struct keep their own protobuf methods.
package apitype
