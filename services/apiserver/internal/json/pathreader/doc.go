// Package pathreader reads single values from a JSON document by their paths, in one pass and without
// decoding the rest. It is for documents that were validated when they were stored. It does not
// validate skipped values. If a field is repeated, the last one counts. It keeps no state.
package pathreader
