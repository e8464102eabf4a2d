// Package olderversions converts stored values of built-in kinds to the storage version.
//
// A cluster that was upgraded over several releases has values that an older Kubernetes stored in
// another apiVersion. The apiVersion that a value states decides how it is decoded: with that
// version's fields and defaults. A value of a version that is not in the table is not decoded.
// Reading it fails with an error that names the version.
//
// Values of the storage version may lack fields that newer servers always store, such as the list
// of a service's addresses. registry.Kind.AfterDecode fills those.
//
// Package encryption calls Convert right after it decrypts a value. So the watch cache, reads,
// writes, admission and the server's controllers see only values of the storage version. The next
// write of an object stores the converted form.
//
// A Converter does not change after New and is safe for concurrent use.
package olderversions
