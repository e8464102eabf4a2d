// Package schema holds custom resources to the structural schemas of their
// definitions: it defaults, prunes and checks JSON documents.
//
// A schema is compiled into a Program, a table of nodes that runs over a
// document's tape (package tape); a Lazy compiles it when it is first needed.
//
//	Shape        makes a document what is stored and served: defaults are filled
//	             in, unknown fields and unwanted nulls go, the metadata of
//	             embedded resources is cleaned. A document that needs no change
//	             comes back as it is, not rebuilt.
//	Check        tells what is wrong with a resource, in Kubernetes' order and
//	             words; what was wrong before an update and has not changed is
//	             tolerated (ratcheting). CheckStatus is for writes of the status.
//	CheckDefaults  holds the default values in a schema to that schema, for the
//	             validation of definitions.
//	Comparer     tells rules (package rules) what has changed.
//
// A resource is shaped when it comes in and when it is read from the store, and
// checked before it is stored. The keywords of schemas have the meaning that
// k8s.io/kube-openapi gives them, with its oddities; a test compares the two,
// and a plain implementation on trees, on random schemas and objects.
//
// Bounds: MaxShaped for what defaults add, 1,000 errors and unknown fields for
// what is reported; recursion follows the schema, not the document. Patterns cannot be interrupted, so
// what all of them may take, with being compiled, is bounded, and who checks is told once when it is a lot;
// what is compiled is kept while there is room (pattern.go). The values of long enums are looked up (enum.go).
//
// Programs are immutable and safe for concurrent use.
package schema
