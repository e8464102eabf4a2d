// Package traced has two stores that wrap another.
//
// Store makes spans of calls for requests that are traced, and reports the revisions that
// those requests wrote. It wraps the store of plain values, so that encryption is part of its
// spans. The app uses it if tracing is configured.
//
// Timed measures the calls of the store itself, for the annotations of the audit log. The app
// uses it if requests are audited.
package traced
