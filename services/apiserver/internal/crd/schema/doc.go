// Package schema applies the structural schemas of definitions to custom resources: it defaults,
// prunes and validates JSON documents.
//
// A schema is compiled into a Program, a table of nodes that runs over a document's tape (package
// tape). A Lazy compiles it on first use.
//
//	Normalize      converts a document to its stored and served form. It fills in defaults,
//	               removes unknown fields and unwanted nulls, and cleans the metadata of
//	               embedded resources. It returns a document that needs no change as it is.
//	Check          returns the errors of a resource, in Kubernetes' order and words. It
//	               tolerates errors that existed before an update and have not changed
//	               (ratcheting). CheckStatus is for writes of the status.
//	CheckDefaults  checks the default values in a schema against that schema, for the
//	               validation of definitions.
//	Comparer       finds changed values for rules (package rules).
//
// A resource is normalized when it arrives and when it is read from the store. It is checked before it
// is stored. Keywords have the semantics of k8s.io/kube-openapi, including its oddities. A test
// compares the two, and a plain implementation on trees, on random schemas and objects.
//
// Bounds: MaxNormalized limits what defaults add. At most 1,000 errors and unknown fields are
// reported. Recursion follows the schema, not the document. Pattern matching cannot be interrupted,
// so the total cost of compiling and matching patterns is limited, and a callback runs once when a
// check is costly. Compiled patterns are cached within a memory budget (pattern.go). Long enums are
// indexed (values.go).
//
// Programs are immutable and safe for concurrent use.
package schema
