// Package traced contains two wrappers of a storage.Interface that observe its calls.
//
// Store creates spans of calls for traced requests, and reports the revisions that those requests
// wrote. It wraps the store of plain values, so its spans include encryption. Package build
// adds it if tracing is configured.
//
// Timed measures the calls of the store itself, for the annotations of the audit log. Package
// build adds it if requests are audited.
package traced
