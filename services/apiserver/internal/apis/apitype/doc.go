// Package apitype gives Go structs what an API type needs beside its fields: a
// protobuf form that agrees byte for byte with the one that Kubernetes'
// generated code writes, and deep copies. Both follow the struct's definition
// (its `protobuf:"…"` tags) by reflection, so that nothing generated is kept.
//
// It owns no state but a cache of what it learnt about each type. It is called
// by the types of internal/apis, whose methods Marshal, Size, Unmarshal and
// DeepCopyObject are one line each. Types of other modules inside such a struct
// keep their own protobuf methods.
package apitype
