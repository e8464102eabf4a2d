// Package olderversions converts stored values of built-in kinds to the storage version.
//
// A cluster that was upgraded over several releases has values that an older Kubernetes stored in
// another apiVersion. Such a value is decoded with the fields and defaults of the apiVersion that
// it contains, and converted. The table olderVersions lists these versions. A value of any other
// version cannot be decoded, and reading it fails with an error that names the version.
//
//	versions.go                                  the table
//	networking.go, scheduling.go, security.go,   the conversions and defaults of single
//	workloads.go                                 kinds
//	converter.go                                 Converter: looks up the version and converts
//
// Values of the storage version may lack fields that newer servers always store, such as the list
// of a service's addresses. registry.Kind.AfterDecode sets those.
//
// Package encryption calls Convert right after it decrypts a value. So the watch cache, reads,
// writes, admission and the server's controllers see only values of the storage version. The next
// write of an object stores the converted form.
package olderversions
